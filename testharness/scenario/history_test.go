package scenario_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/scenario"
)

func event(actor string, kind scenario.Kind, token fencing.Token) scenario.Event {
	return scenario.Event{Actor: actor, Kind: kind, Key: "k", Token: token}
}

func TestJudge_StaleCommits(t *testing.T) {
	const connected, commit, step = scenario.KindConnected, scenario.KindCommit, scenario.KindStep
	for name, c := range map[string]struct {
		events []scenario.Event
		want   int
	}{
		"nothing":             {nil, 0},
		"one holder":          {[]scenario.Event{event("A", connected, 2), event("A", commit, 2)}, 0},
		"before the takeover": {[]scenario.Event{event("A", connected, 2), event("A", commit, 2), event("B", connected, 3), event("B", commit, 3)}, 0},
		"after the takeover":  {[]scenario.Event{event("A", connected, 2), event("B", connected, 3), event("A", commit, 2)}, 1},
		"the lock alone is no claim": {[]scenario.Event{
			event("A", connected, 2), event("B", scenario.KindLock, 3), event("A", commit, 2)}, 0},
		"a step is no commit": {[]scenario.Event{event("A", connected, 2), event("B", connected, 3), event("A", step, 2)}, 0},
		"another key's": {[]scenario.Event{event("A", connected, 2),
			{Actor: "B", Kind: connected, Key: "other", Token: 3}, event("A", commit, 2)}, 0},
		"an old one connects late": {[]scenario.Event{event("B", connected, 3), event("A", connected, 2), event("A", commit, 2)}, 1},
		"each counts":              {[]scenario.Event{event("B", connected, 3), event("A", commit, 2), event("A", commit, 2)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scenario.Judge(scenario.ArmEtcd, granted(c.events)).StaleCommits; got != c.want {
				t.Errorf("got %d stale commits, want %d", got, c.want)
			}
		})
	}
}

func TestJudge_RejectionsAndRows(t *testing.T) {
	v := scenario.Judge(scenario.ArmFenced, []scenario.Event{
		{Actor: "A", Kind: scenario.KindRefused, Key: "k", Token: 2, Code: fencing.CodeStale, Text: "stale_token: k"},
		{Actor: "A", Kind: scenario.KindFailed, Key: "k", Token: 2, Code: "57P01", Text: "gone"},
		{Kind: scenario.KindRows, Text: "a row"},
	})
	want := []scenario.Rejection{{Actor: "A", Key: "k", Token: 2, Code: "LF001", Name: "stale_token", Message: "stale_token: k"}}
	if diff := cmp.Diff(want, v.Rejections); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a row"}, v.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Empty lists are lists in JSON, and kinds are words.
func TestVerdict_JSON(t *testing.T) {
	text, err := json.Marshal(scenario.Judge(scenario.ArmFenced, []scenario.Event{event("A", scenario.KindCommit, 2)}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"stale_commits":0`, `"rejections":[]`, `"rows":[]`, `"kind":"commit"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
}

// A control run has to show damage, and the protected one none, and refusals
// of the kind that the story is about.
func TestResult_Check(t *testing.T) {
	damaged := scenario.Verdict{Arm: scenario.ArmEtcd, StaleCommits: 1, Wrong: []string{"one"}}
	refused := scenario.Verdict{Arm: scenario.ArmFenced, Rejections: []scenario.Rejection{{Code: fencing.CodeStale}}}
	story := scenario.Story{Name: "s", Codes: []fencing.Code{fencing.CodeStale, fencing.CodeEvicted}}
	for name, c := range map[string]struct {
		verdicts []scenario.Verdict
		want     string
	}{
		"as it should be":            {[]scenario.Verdict{damaged, refused}, ""},
		"damage in the rows":         {[]scenario.Verdict{{Arm: scenario.ArmNone, Wrong: []string{"two"}}, refused}, ""},
		"a stale write hidden later": {[]scenario.Verdict{{Arm: scenario.ArmEtcd, StaleCommits: 1}, refused}, `"etcd" shows no damage`},
		"so is a forged one":         {[]scenario.Verdict{{Arm: scenario.ArmEtcd, ForgedCommits: 1}, refused}, `"etcd" shows no damage`},
		"nothing to see":             {[]scenario.Verdict{{Arm: scenario.ArmEtcd}, refused}, `"etcd" shows no damage`},
		"nothing to see without one": {[]scenario.Verdict{{Arm: scenario.ArmNone}, damaged, refused}, `"none" shows no damage`},
		"not protected":              {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced, StaleCommits: 1, Rejections: refused.Rejections}}, "were committed through the proxy"},
		"forged":                     {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced, ForgedCommits: 1, Rejections: refused.Rejections}}, "numbers that no lock gave"},
		"wrong rows":                 {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced, Wrong: []string{"two"}, Rejections: refused.Rejections}}, "wrong through the proxy: two"},
		"the holder was refused":     {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced, Unfounded: 1, Rejections: refused.Rejections}}, "that nobody had shown"},
		"nothing was refused":        {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced}}, "nothing was refused"},
		"refused for another reason": {[]scenario.Verdict{damaged, {Arm: scenario.ArmFenced, Rejections: []scenario.Rejection{{Code: fencing.CodeNotHolder}}}}, "with LF002"},
	} {
		t.Run(name, func(t *testing.T) {
			err := scenario.NewResult(story, c.verdicts).Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A refusal for a higher token needs one that a session had an answer under.
func TestJudge_Unfounded(t *testing.T) {
	const lock, connected = scenario.KindLock, scenario.KindConnected
	refused := func(token fencing.Token, code fencing.Code) scenario.Event {
		return scenario.Event{Actor: "A", Kind: scenario.KindRefused, Key: "k", Token: token, Code: code}
	}
	both := []scenario.Event{event("A", lock, 2), event("A", connected, 2), event("B", lock, 3)}
	for name, c := range map[string]struct {
		last []scenario.Event
		want int
	}{
		"of a holder":                  {[]scenario.Event{refused(2, fencing.CodeStale)}, 1},
		"of one who was evicted":       {[]scenario.Event{refused(2, fencing.CodeEvicted)}, 1},
		"of each":                      {[]scenario.Event{refused(2, fencing.CodeStale), refused(3, fencing.CodeStale)}, 2},
		"of one who was followed":      {[]scenario.Event{event("B", connected, 3), refused(2, fencing.CodeStale)}, 0},
		"of one who shows no such":     {[]scenario.Event{refused(9, fencing.CodeStale)}, 0},
		"of one who shows nothing":     {[]scenario.Event{{Actor: "A", Kind: scenario.KindRefused, Code: fencing.CodeStale}}, 0},
		"for another reason":           {[]scenario.Event{refused(2, fencing.CodeUnverified)}, 0},
		"of the one who followed, too": {[]scenario.Event{event("B", connected, 3), refused(3, fencing.CodeStale)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scenario.Judge(scenario.ArmFenced, append(both[:len(both):len(both)], c.last...)).Unfounded; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
	story := scenario.Story{Live: true, Codes: []fencing.Code{fencing.CodeStale}}
	live := scenario.Verdict{Arm: scenario.ArmFenced, Unfounded: 1, Rejections: []scenario.Rejection{{Code: fencing.CodeStale}}}
	if err := scenario.NewResult(story, []scenario.Verdict{{Arm: scenario.ArmEtcd, Wrong: []string{"one"}}, live}).Check(); err != nil {
		t.Errorf("where a lost lock is enough: got %v, want nil", err)
	}
}

// Some stories are about one code, and not done with another one.
func TestResult_Check_Must(t *testing.T) {
	story := scenario.Story{Name: "s", Codes: []fencing.Code{fencing.CodeUnverified, fencing.CodeStale}, Must: fencing.CodeUnverified}
	damaged := scenario.Verdict{Arm: scenario.ArmEtcd, StaleCommits: 1, Wrong: []string{"one"}}
	for code, want := range map[fencing.Code]bool{fencing.CodeUnverified: true, fencing.CodeStale: false} {
		refused := scenario.Verdict{Arm: scenario.ArmFenced, Rejections: []scenario.Rejection{{Code: code}}}
		if err := scenario.NewResult(story, []scenario.Verdict{damaged, refused}).Check(); (err == nil) != want {
			t.Errorf("refused with %s: got %v", code, err)
		}
	}
}

func TestJudge_ForgedCommits(t *testing.T) {
	const lock, connected, commit = scenario.KindLock, scenario.KindConnected, scenario.KindCommit
	for name, c := range map[string]struct {
		events        []scenario.Event
		forged, stale int
	}{
		"granted":                {[]scenario.Event{event("A", lock, 2), event("A", connected, 2), event("A", commit, 2)}, 0, 0},
		"untagged":               {[]scenario.Event{{Actor: "A", Kind: commit}}, 0, 0},
		"never granted":          {[]scenario.Event{event("A", lock, 2), event("B", connected, 9), event("B", commit, 9)}, 1, 0},
		"nobody is behind a lie": {[]scenario.Event{event("A", lock, 2), event("B", connected, 9), event("A", commit, 2)}, 0, 0},
		"another key's number":   {[]scenario.Event{event("A", lock, 2), {Actor: "A", Kind: commit, Key: "other", Token: 2}}, 1, 0},
		"got before etcd was replaced": {[]scenario.Event{event("A", lock, 9), {Kind: scenario.KindRenewed}, event("B", lock, 2),
			event("B", connected, 2), event("B", commit, 2), event("A", commit, 9)}, 1, 0},
		"one of two locks is stale": {[]scenario.Event{event("A", lock, 2), {Kind: lock, Key: "j", Token: 3}, {Kind: lock, Key: "j", Token: 4},
			{Actor: "B", Kind: connected, Key: "j", Token: 4},
			{Actor: "A", Kind: commit, Key: "k", Token: 2, Also: []scenario.Hold{{Key: "j", Token: 3}}}}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := scenario.Judge(scenario.ArmEtcd, c.events)
			if got.ForgedCommits != c.forged || got.StaleCommits != c.stale {
				t.Errorf("got %d forged and %d stale commits, want %d and %d", got.ForgedCommits, got.StaleCommits, c.forged, c.stale)
			}
		})
	}
}

// granted puts a lock for each number before the events that show it.
func granted(events []scenario.Event) []scenario.Event {
	var locks []scenario.Event
	for _, e := range events {
		locks = append(locks, scenario.Event{Actor: e.Actor, Kind: scenario.KindLock, Key: e.Key, Token: e.Token})
	}
	return append(locks, events...)
}

// Whoever follows a history is told that it grew, and sees each event once.
func TestHistory_Changed(t *testing.T) {
	h := scenario.NewHistory()
	h.Record(event("A", scenario.KindLock, 2))
	h.Record(event("A", scenario.KindCommit, 2))
	if got := len(h.Changed()); got != 1 {
		t.Errorf("told %d times of two events, want once", got)
	}
	all := h.Events(0)
	if len(all) != 2 || len(h.Events(1)) != 1 || len(h.Events(2)) != 0 {
		t.Errorf("got %d, %d and %d events, want 2, 1 and 0", len(all), len(h.Events(1)), len(h.Events(2)))
	}
	if all[0].At != 0 || all[1].At < all[0].At {
		t.Errorf("got times %v and %v, want them in order from 0 on", all[0].At, all[1].At)
	}
}

// Each story has what --list and the documentation need, a name of its own,
// and is judged by something.
func TestStories(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenario.Stories() {
		if s.Name == "" || s.Title == "" || s.Text == "" || s.Right == "" || s.Result == "" || s.Play == nil || len(s.Controls) == 0 || seen[s.Name] {
			t.Errorf("%q: incomplete, or there twice", s.Name)
		}
		seen[s.Name] = true
	}
}

func TestTimeline_Print(t *testing.T) {
	events := []scenario.Event{
		event("A", scenario.KindLock, 2), event("B", scenario.KindLock, 3),
		event("A", scenario.KindConnected, 2), event("B", scenario.KindConnected, 3),
		{Actor: "B", Kind: scenario.KindCommit, Key: "k", Token: 3, Text: "writes"},
		{Actor: "A", Kind: scenario.KindCommit, Key: "k", Token: 2, Text: "writes"},
		{Actor: "C", Kind: scenario.KindCommit, Key: "k", Token: 9, Text: "writes"},
		{Actor: "A", Kind: scenario.KindRefused, Key: "k", Token: 2, Code: "LF001", Story: "writes", Text: "stale_token: k"},
	}
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		timeline := scenario.NewTimeline(&out, colour)
		for _, e := range events {
			timeline.Print(e)
		}
		for _, want := range []string{"B/3", "writes: accepted", "writes: accepted, though token 3 is at work: a STALE WRITE", "a FORGED WRITE", "writes: REFUSED LF001 stale_token: k"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got\n%s\nwant %q in it", out.String(), want)
			}
		}
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("colour: got %v, want %v", got, colour)
		}
	}
}
