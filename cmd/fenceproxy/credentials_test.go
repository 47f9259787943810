package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// answers sends the first message of a SCRAM exchange and a proof that is
// wrong, and returns what the proxy says, less its part of the nonce.
func answers(t *testing.T, addr, user string) (said []string) {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proxy.ALPN}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	params := "user\x00" + user + "\x00database\x00app\x00\x00"
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(params)))
	packet = append(binary.BigEndian.AppendUint32(packet, 3<<16), params...)
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	in := wire.NewReader(conn)
	for {
		typ, n, err := in.Next()
		if err != nil {
			return append(said, "end")
		}
		body, err := in.Read(n)
		if err != nil {
			t.Fatal(err)
		}
		if typ == wire.ErrorResponse {
			report, err := wire.ReadReport(body)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, fmt.Sprintf("%s %s %s", report.Code, strings.ReplaceAll(report.Message, user, "USER"), report.Detail))
			continue
		}
		nonce := regexp.MustCompile(`r=([^,]*)`).FindStringSubmatch(string(body))
		said = append(said, string(typ)+strings.ReplaceAll(string(body[4:]), strings.Join(nonce, ""), ""))
		answer := "SCRAM-SHA-256\x00\x00\x00\x00\x0bn,,n=,r=abc"
		if nonce != nil {
			said[len(said)-1] = string(typ) + strings.Replace(string(body[4:]), nonce[1], fmt.Sprintf("%d bytes", len(nonce[1])), 1)
			answer = "c=biws,r=" + nonce[1] + ",p=" + strings.Repeat("A", 43) + "="
		}
		if _, err := conn.Write(wire.Frame(nil, wire.Password, []byte(answer))); err != nil {
			t.Fatal(err)
		}
	}
}

// Nobody can tell by what the proxy says whether a user exists, also not by
// asking again, another proxy, or one that was restarted.
func TestServe_UnknownUsers(t *testing.T) {
	s := stack.New(t, "app")
	root := open(t, s.DSN("postgres", "app"))
	exec1(t, root, "GRANT SELECT (rolname, rolpassword) ON pg_authid TO fence")
	exec1(t, root, "CREATE ROLE without LOGIN")
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	userlist := filepath.Join(t.TempDir(), "userlist.txt")
	if err := os.WriteFile(userlist, []byte(`"app" "in clear text"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`s=[A-Za-z0-9+/]{22}==`)
	var first []string
	for i, flags := range [][]string{nil, {"--auth-file", userlist}, nil} {
		p := serveOn(t, s, append(flags, "--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key)...)
		said := answers(t, p.Addr, "nobody")
		if len(said) != 4 || !strings.HasPrefix(said[2], "28P01") || said[3] != "end" {
			t.Fatalf("proxy %d: got %q", i, said)
		}
		if again := answers(t, p.Addr, "nobody"); fmt.Sprint(again) != fmt.Sprint(said) {
			t.Errorf("proxy %d, asked again: got %q, want %q", i, again, said)
		}
		if i == 0 {
			first = said
		} else if fmt.Sprint(said) != fmt.Sprint(first) {
			t.Errorf("proxy %d: got %q, want what the first proxy says, %q", i, said, first)
		}
		for _, user := range []string{"app", "without", "somebody"} {
			got := answers(t, p.Addr, user)
			if a, b := shape.ReplaceAllString(fmt.Sprint(got), "s="), shape.ReplaceAllString(fmt.Sprint(said), "s="); a != b {
				t.Errorf("proxy %d: %s hears %q, want the form of %q", i, user, got, said)
			}
			if got[1] == said[1] {
				t.Errorf("proxy %d: two users have one salt", i)
			}
		}
		if i == 0 {
			p.Kill()
		}
	}
}

// A password that changes in the file works at once; a file that is damaged
// leaves what was there.
func TestServe_AuthFile(t *testing.T) {
	s := stack.New(t, "app")
	root := open(t, s.DSN("postgres", "app"))
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	userlist := filepath.Join(t.TempDir(), "userlist.txt")
	change := func(text string, at int) {
		t.Helper()
		if err := os.WriteFile(userlist, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// Two changes within one tick of the file system's clock look like one.
		when := time.Now().Add(time.Duration(at) * time.Second)
		if err := os.Chtimes(userlist, when, when); err != nil {
			t.Fatal(err)
		}
	}
	change(`"app" "first"`, 0)
	exec1(t, root, "ALTER ROLE app PASSWORD 'first'")
	p := serveOn(t, s, "--auth-file", userlist, "--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key)
	login := func(password string) error {
		config, err := pgx.ParseConfig(fmt.Sprintf("postgres://app:%s@%s/app?sslmode=require", password, p.Addr))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err
	}
	if err := login("first"); err != nil {
		t.Error(err)
	}
	exec1(t, root, "ALTER ROLE app PASSWORD 'second'")
	if err := login("second"); err == nil {
		t.Error("logged in with a password that the file doesn't have")
	}
	poll.Until(t, "a word about the file", func() bool { return strings.Contains(p.Log(), "verified by --auth-file "+userlist) })
	change(`"app" "second"`, 1)
	if err := login("second"); err != nil {
		t.Errorf("after the file was changed: %v", err)
	}
	if err := login("first"); err == nil {
		t.Error("the old password still works")
	}
	change(`"app" "sec`, 2)
	if err := login("second"); err != nil {
		t.Errorf("after the file was damaged: %v", err)
	}
	poll.Until(t, "a word about it", func() bool { return strings.Contains(p.Log(), "passwords not reloaded") })
	if strings.Contains(p.Log(), "second") {
		t.Error("a password is in the log")
	}
}

// A GRANT works without a restart, and so does its end; the log tells that a
// password is past its time.
func TestServe_Granted(t *testing.T) {
	s := stack.New(t, "app")
	root := open(t, s.DSN("postgres", "app"))
	exec1(t, root, "ALTER ROLE app PASSWORD 'secret'")
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	p := serveOn(t, s, "--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key)
	bound := func() bool {
		return strings.Contains(strings.Join(answers(t, p.Addr, "app"), " "), "SCRAM-SHA-256-PLUS")
	}
	said := func(words string) func() bool { return func() bool { return strings.Contains(p.Log(), words) } }
	poll.Until(t, "a word about the grant", said("GRANT SELECT"))
	if bound() {
		t.Error("channel binding is offered without the grant")
	}
	exec1(t, root, "GRANT SELECT (rolname, rolpassword) ON pg_authid TO fence")
	poll.Until(t, "channel binding is offered", bound)
	poll.Until(t, "a word about it", said("roles' secrets can be read"))
	exec1(t, root, "ALTER ROLE app VALID UNTIL '2001-01-01'")
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://app:secret@%s/app?sslmode=require", p.Addr))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.ConnectConfig(t.Context(), config); code(err) != "28P01" {
		t.Errorf("past VALID UNTIL: got %v, want 28P01", err)
	}
	poll.Until(t, "a word about it", said("VALID UNTIL"))
	exec1(t, root, "REVOKE SELECT (rolname, rolpassword) ON pg_authid FROM fence")
	poll.Until(t, "no channel binding is offered", func() bool { return !bound() })
}
