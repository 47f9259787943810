package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a command line in this process.
func command(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot(environment{lookup: os.LookupEnv})
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestExplain_Text(t *testing.T) {
	const sql = "WITH d AS (\n  DELETE FROM t RETURNING *\n) SELECT * FROM d, a_table_whose_name_is_long, another_one;\nBEGIN; CALL p(); VACUUM"
	const want = `1  WITH d AS ( DELETE FROM t RETURNING * ) SELECT * FROM d, a_table_whose_name_…
   class  may write
   why    DELETE at 2:3: a word that stands for a write
   check  early: before the statement

2  BEGIN
   class  begin
   why    BEGIN at 4:1: the command
   check  none: a check comes before the first statement that may write

3  CALL p()
   class  may write
   why    CALL at 4:8: the command
   flags  may commit
   check  early: before the statement

4  VACUUM
   class  may write
   why    VACUUM at 4:18: the command
   flags  not in a block
   check  none: PostgreSQL refuses it inside a transaction block
`
	file := filepath.Join(t.TempDir(), "a.sql")
	if err := os.WriteFile(file, []byte(sql), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ stdin, arg string }{
		"an argument": {"", sql}, "a file": {"", file}, "standard input": {sql, "-"},
	} {
		got, err := command(t, c.stdin, "explain", c.arg)
		if err != nil || got != want {
			t.Errorf("%s: got %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

func TestExplain_Refusals(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"a statement":             {[]string{"PREPARE TRANSACTION 'x'"}, []string{"check  refused, LF007: not_fenceable: PREPARE TRANSACTION", "hint   Use COMMIT"}},
		"may commit":              {[]string{"DO ''"}, []string{"flags  may commit", "check  early"}},
		"the whole text":          {[]string{"SELECT 'ü'", "--client-encoding=GBK"}, []string{"check  refused, LF007: not_fenceable: the text can't be split with certainty"}},
		"in one message":          {[]string{"SELECT 1; VACUUM", "--together"}, []string{"not run: statement 2 refuses the whole text"}},
		"backslashes":             {[]string{`SELECT '\'; DELETE --'`, "--standard-conforming-strings=off"}, []string{"why    standard_conforming_strings is off", "check  early"}},
		"nothing":                 {[]string{" -- nothing"}, []string{"no statement\n"}},
		"a tag":                   {[]string{"SET LOCAL fence.token = 7"}, []string{"tag    fence.token: set for the transaction"}},
		"a tag all by parameters": {[]string{"SELECT set_config($1, $2, $3)"}, []string{"tag    the setting that $1 names: set to parameter $2, for the transaction only if $3 says so"}},
		"a tag by parameter":      {[]string{"SELECT set_config('fence.key', $1, false)"}, []string{"tag    fence.key: set to parameter $1"}},
		"every tag":               {[]string{"DISCARD ALL"}, []string{"tag    all settings: reset\n"}},
	} {
		got, err := command(t, "", append([]string{"explain"}, c.args...)...)
		for _, want := range c.says {
			if flat := strings.Join(strings.Fields(got), " "); err != nil || !strings.Contains(flat, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%s: got %v\n%s\nwant %q in it", name, err, got, want)
			}
		}
		for line := range strings.Lines(got) {
			if len([]rune(line)) > pageWidth+1 {
				t.Errorf("%s: a line is wider than %d: %s", name, pageWidth, line)
			}
		}
	}
}

func TestExplain_JSON(t *testing.T) {
	got, err := command(t, "", "explain", "--json", "SELECT 1 FROM f(2);\nCALL p()")
	var said explained
	if err != nil || json.Unmarshal([]byte(got), &said) != nil || len(said.Statements) != 2 {
		t.Fatalf("got %v, %s", err, got)
	}
	if d := said.Statements[0].DecidedBy; d == nil || *d != (decider{"f", 1, 15}) {
		t.Errorf("got %+v, want the name of the function", d)
	}
	if st := said.Statements[1]; st.Line != 2 || st.Column != 1 || st.Check != "early" {
		t.Errorf("got %+v", st)
	}
}

func TestExplain_Errors(t *testing.T) {
	for arg, want := range map[string]string{
		"nosuch.sql":       `there is no file "nosuch.sql"`,
		"SELECT '":         "PostgreSQL refuses the whole text: unterminated",
		"SELECT\x00DELETE": "zero byte",
	} {
		got, err := command(t, "", "explain", arg)
		var usage *usageError
		if got != "" || err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &usage) != strings.HasSuffix(arg, ".sql") {
			t.Errorf("%q: got %q, %v, want %q", arg, got, err, want)
		}
	}
}
