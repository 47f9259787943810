package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// codeRow is a line of README.md's table of errors.
var codeRow = regexp.MustCompile("(?m)^\\| ((?:LF|3F)[0-9]{3}) \\| `([a-z_]+)` \\| (.+) \\| (.+) \\|$")

// explain tells of each code what README.md does, and where the runbook goes on.
func TestExplain_Codes(t *testing.T) {
	runbook := read(t, "docs/runbook.md")
	plain := regexp.MustCompile("`|; \\[[^]]*\\]\\([^)]*\\)")
	rows := codeRow.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(rows) != 10 {
		t.Errorf("got %d rows of README.md, want 10", len(rows))
	}
	for _, row := range rows {
		want := explainedCode{Code: row[1], Name: row[2], Means: plain.ReplaceAllString(row[3], ""), Do: plain.ReplaceAllString(row[4], "")}
		want.More = fmt.Sprintf("https://github.com/fenceproxy/fenceproxy/blob/main/docs/runbook.md#%s-%s", strings.ToLower(want.Code), want.Name)
		for _, word := range []string{want.Code, strings.ToLower(want.Code), want.Name} {
			out, err := command(t, "", "explain", word, "--json")
			var got explainedCode
			if err != nil || json.Unmarshal([]byte(out), &got) != nil || got != want {
				t.Errorf("%s: got %s %v, want %+v", word, out, err, want)
			}
		}
		if heading := fmt.Sprintf("\n### %s %s\n", want.Code, want.Name); !strings.Contains(runbook, heading) {
			t.Errorf("docs/runbook.md lacks %q", heading)
		}
	}
	const want = `LF005  evicted
   means  a higher claim ended the session
   to do  stop
   more   https://github.com/fenceproxy/fenceproxy/blob/main/docs/runbook.md#lf005-evicted
`
	if got, err := command(t, "", "explain", "lf005"); err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	for _, word := range []string{"lf01", "LF042", "LF1", "lf001x"} {
		if _, err := command(t, "", "explain", word); err == nil || !strings.Contains(err.Error(), "LF001 to LF009") {
			t.Errorf("%s: got %v, want which codes there are", word, err)
		}
	}
	for _, word := range []string{"55P03", "57p03", "40001"} {
		if _, err := command(t, "", "explain", word); err == nil || !strings.Contains(err.Error(), "PostgreSQL's") {
			t.Errorf("%s: got %v, want whose code it is", word, err)
		}
	}
	if got, err := command(t, "", "explain", "LF"); err != nil || !strings.Contains(got, "class") {
		t.Errorf("a word of SQL: got %v, %s", err, got)
	}
}
