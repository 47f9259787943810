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
			if got := scenario.Judge(c.events).StaleCommits; got != c.want {
				t.Errorf("got %d stale commits, want %d", got, c.want)
			}
		})
	}
}

func TestJudge_RejectionsAndRows(t *testing.T) {
	v := scenario.Judge([]scenario.Event{
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
	text, err := json.Marshal(scenario.Judge([]scenario.Event{event("A", scenario.KindCommit, 2)}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"stale_commits":0`, `"rejections":[]`, `"rows":[]`, `"kind":"commit"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
}

func TestResult_Check(t *testing.T) {
	refused := []scenario.Rejection{{Code: fencing.CodeStale}}
	for name, c := range map[string]struct {
		unprotected, protected scenario.Verdict
		want                   string
	}{
		"as it should be":     {scenario.Verdict{StaleCommits: 1}, scenario.Verdict{Rejections: refused}, ""},
		"nothing to see":      {scenario.Verdict{}, scenario.Verdict{Rejections: refused}, "no stale write"},
		"not protected":       {scenario.Verdict{StaleCommits: 1}, scenario.Verdict{StaleCommits: 1, Rejections: refused}, "were committed through the proxy"},
		"nothing was refused": {scenario.Verdict{StaleCommits: 1}, scenario.Verdict{}, "nothing was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			err := scenario.Result{Scenario: "s", Unprotected: c.unprotected, Protected: c.protected}.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestHistory_Observe(t *testing.T) {
	h := scenario.NewHistory()
	var seen []scenario.Event
	h.Observe = func(e scenario.Event) { seen = append(seen, e) }
	h.Record(event("A", scenario.KindLock, 2))
	h.Record(event("A", scenario.KindCommit, 2))
	if diff := cmp.Diff(h.Events(), seen); diff != "" || len(seen) != 2 {
		t.Errorf("observed (-recorded +observed):\n%s", diff)
	}
	if seen[1].At < seen[0].At {
		t.Errorf("got times %v and %v, want them in order", seen[0].At, seen[1].At)
	}
}

func TestTimeline_Print(t *testing.T) {
	events := []scenario.Event{
		event("A", scenario.KindConnected, 2), event("B", scenario.KindConnected, 3),
		{Actor: "B", Kind: scenario.KindCommit, Key: "k", Token: 3, Text: "writes"},
		{Actor: "A", Kind: scenario.KindCommit, Key: "k", Token: 2, Text: "writes"},
		{Actor: "A", Kind: scenario.KindRefused, Key: "k", Token: 2, Code: "LF001", Story: "writes", Text: "stale_token: k"},
	}
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		timeline := scenario.NewTimeline(&out, colour)
		for _, e := range events {
			timeline.Print(e)
		}
		for _, want := range []string{"B/3", "writes: accepted", "writes: accepted, though token 3 is at work: a STALE WRITE", "writes: REFUSED LF001 stale_token: k"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got\n%s\nwant %q in it", out.String(), want)
			}
		}
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("colour: got %v, want %v", got, colour)
		}
	}
}
