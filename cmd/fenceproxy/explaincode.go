package main

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// An explainedCode is what explain --json prints of an error's code.
type explainedCode struct {
	Code  string `json:"code"`
	Name  string `json:"name"`
	Means string `json:"means"`
	Do    string `json:"do"`
	More  string `json:"more"`
}

// runbook is where those read on who have the program and not its source.
const runbook = "https://github.com/fenceproxy/fenceproxy/blob/main/docs/runbook.md"

// What is no SQL, but somebody's idea of a code, and what is one of PostgreSQL's:
// SQLSTATEs have a digit among their five characters.
var (
	looksLikeCode  = regexp.MustCompile(`^(?i)LF[0-9]\w*$`)
	looksLikeState = regexp.MustCompile(`^(?i)[0-9][0-9a-z]{4}$`)
)

// explainCode finds a code by itself or by its name, as messages and logs have it.
func explainCode(word string) (explainedCode, bool) {
	for _, c := range [...]struct {
		code      fencing.Code
		means, do string
	}{
		{fencing.CodeStale, "another holder has the lock: its higher token was accepted, or what else the policy fencing goes by", "stop; acquire the lock again"},
		{fencing.CodeNotHolder, "etcd doesn't know the token as the current holder's", "send the holder's create revision"},
		{fencing.CodeUnverified, "etcd can't be reached, so a new claim can't be verified", "retry"},
		{fencing.CodeTokenRequired, "a write without a tag where one is required", "tag the session"},
		{fencing.CodeEvicted, "a higher claim ended the session", "stop"},
		{fencing.CodeLineage, "etcd's history went backwards, or it is another cluster", "page someone"},
		{fencing.CodeNotFenceable, "the statement can't be made atomic with the check, its text is over 16 MB, or a guarded table's row has no key", "run it untagged; see the HINT"},
		{fencing.CodeClaimTimeout, "stale work could not be ended in time; the DETAIL names it", "look, retry"},
		{fencing.CodeMalformedTag, "a tag that is incomplete or can't be parsed", "mend the tag"},
		{fencing.CodeNotInstalled, "the database has no schema fence", "fenceproxy init"},
	} {
		code, name := string(c.code), c.code.Name()
		if strings.EqualFold(word, code) || strings.EqualFold(word, name) {
			return explainedCode{code, name, c.means, c.do, runbook + "#" + strings.ToLower(code) + "-" + name}, true
		}
	}
	return explainedCode{}, false
}

func (e explainedCode) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(e)
	}
	var p page
	p.line(e.Code + "  " + e.Name)
	for _, l := range [...]struct{ label, text string }{{"means", e.Means}, {"to do", e.Do}, {"more", e.More}} {
		p.labelled("   ", l.label, l.text)
	}
	return p.write(out)
}
