package history_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

func at(n history.Moment) history.Span { return history.Span{Lo: n, Hi: n} }

func TestTenures(t *testing.T) {
	come := func(token fencing.Token, revision int64) history.LockEvent {
		return history.LockEvent{Key: "k", Token: token, Revision: revision, When: at(history.Moment(revision))}
	}
	gone := func(token fencing.Token, revision int64) history.LockEvent {
		e := come(token, revision)
		e.Gone = true
		return e
	}
	never := history.Span{Lo: history.Never, Hi: history.Never}
	tenure := func(token fencing.Token, from, to history.Span) history.Tenure {
		return history.Tenure{Key: "k", Token: token, From: from, To: to}
	}
	cases := []struct {
		name   string
		events []history.LockEvent
		want   []history.Tenure
	}{
		{"one holder", []history.LockEvent{come(1, 1), gone(1, 2)}, []history.Tenure{tenure(1, at(1), at(2))}},
		{"to the end", []history.LockEvent{come(1, 1)}, []history.Tenure{tenure(1, at(1), never)}},
		{"a waiter gets its turn", []history.LockEvent{come(1, 1), come(2, 2), gone(1, 5)},
			[]history.Tenure{tenure(1, at(1), at(5)), tenure(2, at(5), never)}},
		{"a waiter gives up", []history.LockEvent{come(1, 1), come(2, 2), gone(2, 3), gone(1, 5)}, []history.Tenure{tenure(1, at(1), at(5))}},
		{"out of order", []history.LockEvent{gone(1, 5), come(2, 2), come(1, 1)},
			[]history.Tenure{tenure(1, at(1), at(5)), tenure(2, at(5), never)}},
		{"the same event twice", []history.LockEvent{come(1, 1), come(1, 1), gone(1, 2), gone(1, 2)}, []history.Tenure{tenure(1, at(1), at(2))}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, history.Tenures(c.events)["k"]); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestBound(t *testing.T) {
	glances := []history.Glance{{Revision: 5, Asked: 50, Answered: 55}, {Revision: 8, Asked: 80, Answered: 85}, {Revision: 8, Asked: 90, Answered: 95}}
	cases := []struct {
		name     string
		revision int64
		want     history.Span
	}{
		{"before all", 3, history.Span{Lo: 0, Hi: 55}},
		{"seen by the first", 5, history.Span{Lo: 0, Hi: 55}},
		{"between", 7, history.Span{Lo: 50, Hi: 85}},
		{"after all", 9, history.Span{Lo: 90, Hi: 1000}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			events := []history.LockEvent{{Revision: c.revision, When: history.Span{Hi: 1000}}}
			history.Bound(events, glances)
			if got := events[0].When; got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// An operation stands twice in a file, and once in what is loaded; one whose
// worker was killed has no answer.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	for _, worker := range []string{"a", "b"} {
		var file bytes.Buffer
		r := history.NewRecorder(worker, &file)
		done := &history.Op{Kind: history.KindWrite, Tag: []fencing.Pair{{Key: "k", Token: 7}}, Rows: []history.Row{{ID: 1, Key: "k", Token: 7}}}
		r.Begin(done)
		done.Rows[0].N, done.Outcome = 3, history.OutcomeOK
		r.End(done)
		r.Begin(&history.Op{Kind: history.KindClaim, Tag: []fencing.Pair{{Key: "k", Token: 7}}})
		r.Add(history.Record{Fault: &history.Fault{Kind: "cut"}})
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		file.WriteString(`{"op":{"worker":"a","seq":9`) // killed in the middle of a line
		if err := os.WriteFile(filepath.Join(dir, worker+".jsonl"), file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := history.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range h.Ops {
		got = append(got, h.Ops[i].String())
	}
	want := []string{"a write k token 7: row 1 → ok", "a claim k token 7 → unknown", "b write k token 7: row 1 → ok", "b claim k token 7 → unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if h.Ops[0].Rows[0].N != 3 || h.Ops[0].Return < h.Ops[0].Invoke {
		t.Errorf("got %+v, want the answer's number and time", h.Ops[0])
	}
	if h.Ops[1].Ended() != history.Never {
		t.Errorf("got an end at %d, want none", h.Ops[1].Ended())
	}
	if len(h.Faults) != 2 {
		t.Errorf("got %d faults, want 2", len(h.Faults))
	}
}

// A history that says too little, or says one thing twice, is refused: what it
// leaves out can't be held against anybody.
func TestRead_Damaged(t *testing.T) {
	const good = `{"op":{"worker":"w","seq":1,"kind":"write","tag":[{"Key":"k","Token":7}],"rows":[{"id":1,"key":"k","token":7}],"invoke":5}}`
	ended := strings.Replace(good, `"invoke":5`, `"invoke":5,"return":6,"outcome":"ok"`, 1)
	second := strings.Replace(ended, `"seq":1`, `"seq":2`, 1)
	without := func(part string) string { return strings.Replace(second, part, "", 1) }
	instead := func(part, other string) string { return strings.Replace(second, part, other, 1) }
	read := func(seen string) string {
		return `{"op":{"worker":"w","seq":2,"kind":"read","tag":[{"Key":"k","Token":7}],"invoke":7,"return":8,"outcome":"ok",` + seen + `}}`
	}
	for name, c := range map[string]struct{ line, word string }{
		"nothing is wrong":                 {second, ""},
		"a kind that there isn't":          {`{"op":{"kind":"nonsense"}}`, "nonsense"},
		"a field that there isn't":         {`{"op":{"kind":"claim","outcom":"ok"}}`, "outcom"},
		"a record that there isn't":        {`{"operation":{"kind":"claim"}}`, "operation"},
		"a record that says nothing":       {`{}`, "nothing"},
		"something that isn't JSON":        {`claim`, "invalid"},
		"no worker":                        {without(`"worker":"w",`), "needs a worker"},
		"no number":                        {without(`"seq":2,`), "needs a worker and a seq"},
		"no kind":                          {without(`"kind":"write",`), "no kind"},
		"no lock":                          {without(`"tag":[{"Key":"k","Token":7}],`), "under which lock"},
		"no token":                         {instead(`"Token":7`, `"Token":0`), "under which key and token"},
		"no beginning":                     {without(`"invoke":5,`), "when it began"},
		"an answer without a time":         {without(`"return":6,`), "when it was answered"},
		"an answer before it was asked":    {instead(`"return":6`, `"return":4`), "when it was answered"},
		"a write without rows":             {without(`"rows":[{"id":1,"key":"k","token":7}],`), "which rows"},
		"a row of a lock that isn't shown": {instead(`"id":1,"key":"k"`, `"id":1,"key":"other"`), "isn't under the lock"},
		"a row of another token":           {instead(`"token":7`, `"token":8`), "isn't under the lock"},
		"a read of no key":                 {read(`"seen":{"n":1,"count":0,"sum":0,"xor":0}`), "which of its keys"},
		"a read of nothing":                {read(`"key":"k","seen":{"n":1,"floor":7,"count":0,"sum":0,"xor":0}`), "floor at 7"},
		"another operation of the name":    {strings.Replace(ended, `"invoke":5`, `"invoke":6`, 1), "twice"},
		"the name in another kind":         {strings.Replace(ended, `"kind":"write"`, `"kind":"claim"`, 1), "twice"},
		"two ends":                         {ended + "\n" + ended, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := history.Read(strings.NewReader(good + "\n" + c.line + "\n"))
			switch {
			case c.word == "" && (err != nil || len(h.Ops) != 2):
				t.Errorf("got %v and %v, want two operations", h, err)
			case c.word != "" && (err == nil || !strings.Contains(err.Error(), "line ") || !strings.Contains(err.Error(), c.word)):
				t.Errorf("got %v, want an error that names the line and %q", err, c.word)
			}
		})
	}
}

func TestNow(t *testing.T) {
	before := history.Now()
	if after := history.Now(); after < before || before <= 0 {
		t.Errorf("got %d and then %d, want a clock that goes forward", before, after)
	}
}
