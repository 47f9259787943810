package scram_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

func TestParseUserlist(t *testing.T) {
	secret, _ := derive(t, password)
	text := `;; a comment, "not" "an entry"
"alice" "` + secret.Encode() + `" the rest "is" ignored
	; another comment

  "bob"	"pencil"
"old" "md5` + strings.Repeat("0f", 16) + `"` + "\r\n" + `"nobody" ""
"quo""te" """x"""
"twice" "one"
"twice" "two"
"almost" "md5` + strings.Repeat("0F", 16) + `"
"ünï" "pass""word"`
	list, err := scram.ParseUserlist(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []scram.Entry{
		{User: "alice", Line: 2, Kind: scram.KindSCRAM, Secret: secret},
		{User: "bob", Line: 5, Kind: scram.KindPlain, Password: "pencil"},
		{User: "old", Line: 6, Kind: scram.KindMD5},
		{User: "nobody", Line: 7, Kind: scram.KindEmpty},
		{User: `quo"te`, Line: 8, Kind: scram.KindPlain, Password: `"x"`},
		{User: "twice", Line: 10, Kind: scram.KindPlain, Password: "two"},
		{User: "almost", Line: 11, Kind: scram.KindPlain, Password: "md5" + strings.Repeat("0F", 16)},
		{User: "ünï", Line: 12, Kind: scram.KindPlain, Password: `pass"word`},
	} {
		if got, ok := list.Lookup(want.User); !ok || got != want {
			t.Errorf("got %v, %v, want %v", got, ok, want)
		}
	}
	if got, want := list.Len(), 8; got != want {
		t.Errorf("got %d users, want %d", got, want)
	}
	if _, ok := list.Lookup("Alice"); ok {
		t.Error("found a user who isn't there")
	}
}

func TestParseUserlist_Malformed(t *testing.T) {
	const hidden = "hunter2"
	for name, line := range map[string]string{
		"no quotes":           "alice hunter2",
		"no password":         `"alice"`,
		"no quoted password":  `"alice" hunter2`,
		"something between":   `"alice" hunter2 "hunter2"`,
		"user not ended":      `"alice hunter2`,
		"password not ended":  `"alice" "hunter2`,
		"ends in two quotes":  `"alice" "hunter2""`,
		"no space between":    `"alice""hunter2"`,
		"no user":             `"" "hunter2"`,
		"hash for a comment":  `# "alice" "hunter2"`,
		"NUL in the user":     "\"al\x00ice\" \"hunter2\"",
		"NUL in the password": "\"alice\" \"hunter2\x00\"",
		"password too long":   `"alice" "` + strings.Repeat(hidden, 300) + `"`,
		"quotes too long":     `"alice" "` + strings.Repeat(`""`, 2049) + `"`,
		"user too long":       `"` + strings.Repeat("x", 2049) + `" "hunter2"`,
		"secret malformed":    `"alice" "SCRAM-SHA-256$4096:hunter2"`,
		"secret for ever":     `"alice" "SCRAM-SHA-256$9999999999:hunter2"`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scram.ParseUserlist("\n\"ok\" \"ok\"\n" + line + "\n")
			if !errors.Is(err, scram.ErrUserlist) || !strings.Contains(err.Error(), "line 3: ") {
				t.Fatalf("got %v, want %v of line 3", err, scram.ErrUserlist)
			}
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the error quotes the password: %v", err)
			}
		})
	}
	if _, err := scram.ParseUserlist(strings.Repeat("\n", scram.MaxUserlist+1)); !errors.Is(err, scram.ErrUserlist) {
		t.Errorf("got %v for a huge file, want %v", err, scram.ErrUserlist)
	}
}

func TestEntry_Resolve(t *testing.T) {
	secret, _ := derive(t, password)
	mock := scram.NewMock(nil, 3)
	wanted, _, err := scram.Derive(password, mock.Salt("alice"), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		entry scram.Entry
		want  scram.Secret
		err   error
	}{
		{scram.Entry{User: "alice", Kind: scram.KindSCRAM, Secret: secret}, secret, nil},
		{scram.Entry{User: "alice", Kind: scram.KindPlain, Password: password}, wanted, nil},
		{scram.Entry{User: "alice", Kind: scram.KindMD5}, scram.Secret{}, scram.ErrMD5},
		{scram.Entry{User: "alice", Kind: scram.KindEmpty}, scram.Secret{}, scram.ErrNoPassword},
	} {
		t.Run(fmt.Sprint(test.entry.Kind), func(t *testing.T) {
			got, err := test.entry.Resolve(mock)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if err := exchange(scram.NewPasswordClient(password, nil), scram.NewServer("alice", &got, mock, nil)); err != nil {
				t.Errorf("log in by the secret: %v", err)
			}
		})
	}
}
