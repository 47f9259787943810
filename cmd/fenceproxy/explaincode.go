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

// What is no SQL, but somebody's idea of a code or of its name, and what is a code of
// PostgreSQL's: SQLSTATEs have a digit among their five characters.
var (
	looksLikeCode  = regexp.MustCompile(`^(?i)LF[0-9]\w*$`)
	looksLikeName  = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	looksLikeState = regexp.MustCompile(`^(?i)[0-9][0-9a-z]{4}$`)
)

// explainedCodes are those of refusals.
func explainedCodes() []explainedCode {
	codes := []explainedCode{
		{Code: string(fencing.CodeStale), Means: "another holder has the lock: its higher token was accepted, or what else the policy fencing goes by", Do: "stop; acquire the lock again"},
		{Code: string(fencing.CodeNotHolder), Means: "etcd doesn't know the token as the current holder's", Do: "send the holder's create revision"},
		{Code: string(fencing.CodeUnverified), Means: "etcd can't be reached, so a new claim can't be verified", Do: "retry"},
		{Code: string(fencing.CodeTokenRequired), Means: "a write without a tag where one is required", Do: "tag the session"},
		{Code: string(fencing.CodeEvicted), Means: "a higher claim ended the session", Do: "stop"},
		{Code: string(fencing.CodeLineage), Means: "etcd's history went backwards, or it is another cluster", Do: "page someone"},
		{Code: string(fencing.CodeNotFenceable), Means: "the statement can't be made atomic with the check, its text is over 16 MB, or a guarded table's row has no key", Do: "run it untagged; see the HINT"},
		{Code: string(fencing.CodeClaimTimeout), Means: "stale work could not be ended in time; the DETAIL names it", Do: "look, retry"},
		{Code: string(fencing.CodeMalformedTag), Means: "a tag that is incomplete or can't be parsed", Do: "mend the tag"},
		{Code: string(fencing.CodeNotInstalled), Means: "the database has no schema fence", Do: "fenceproxy init"},
	}
	for i := range codes {
		c := &codes[i]
		c.Name = fencing.Code(c.Code).Name()
		c.More = runbook + "#" + strings.ToLower(c.Code) + "-" + c.Name
	}
	return codes
}

// explainCode finds a code by itself or by its name, as messages and logs have it.
func explainCode(word string) (explainedCode, bool) {
	for _, c := range explainedCodes() {
		if strings.EqualFold(word, c.Code) || strings.EqualFold(word, c.Name) {
			return c, true
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
