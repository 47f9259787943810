package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
)

// A script is a row of tokens, split by spaces. After ">" they are entries
// that are pushed, after "<" replies and what is to become of them.
//
// An entry is the letter of the message, with "/purpose" where it is hidden,
// or "Q[purpose,purpose]" for a Query with a plan; Ds and Dp are the two
// Describes, and "S+" is the Sync of a segment in a block of the proxy's own.
//
// A reply is a letter and a sign: none for Forward, - for Hide, ! for Refuse,
// @ for Capture, ~ for Withhold, and * for "not expected". A ReadyForQuery
// after a failure names the purpose of what failed: "Z?early".

var kinds = map[string]queue.Kind{
	"P": queue.Parse, "B": queue.Bind, "Ds": queue.DescribeStatement, "Dp": queue.DescribePortal,
	"E": queue.Execute, "C": queue.Close, "S": queue.Sync, "Q": queue.Query, "F": queue.Function,
	"d": queue.CopyData, "c": queue.CopyEnd, "f": queue.CopyEnd,
}

var purposes = map[string]queue.Purpose{}

var signs = map[queue.Verdict]string{
	queue.Forward: "", queue.Hide: "-", queue.Refuse: "!", queue.Capture: "@", queue.Withhold: "~",
}

func TestMain(m *testing.M) {
	for p := queue.Client; p <= queue.Rollback; p++ {
		purposes[p.String()] = p
	}
	m.Run()
}

func entry(t *testing.T, token string) queue.Entry {
	t.Helper()
	name, purpose, _ := strings.Cut(token, "/")
	name, plan, planned := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	name, enclosed := strings.CutSuffix(name, "+")
	kind, ok := kinds[name]
	if !ok {
		t.Fatalf("no such entry: %q", token)
	}
	e := queue.Entry{Kind: kind, Purpose: lookup(t, purpose), Enclosed: enclosed}
	if planned {
		e.Plan = []queue.Purpose{}
		for p := range strings.SplitSeq(plan, ",") {
			e.Plan = append(e.Plan, lookup(t, p))
		}
	}
	return e
}

func lookup(t *testing.T, purpose string) queue.Purpose {
	t.Helper()
	if purpose == "" {
		return queue.Client
	}
	p, ok := purposes[purpose]
	if !ok {
		t.Fatalf("no such purpose: %q", purpose)
	}
	return p
}

// told writes an outcome as a script does.
func told(reply byte, out queue.Outcome, err error) string {
	if err != nil {
		return string(reply) + "*"
	}
	s := string(reply) + signs[out.Verdict]
	if out.Failed {
		s += "?" + out.FailedIn.String()
	}
	return s
}

// play runs a script and compares each outcome with it.
func play(t *testing.T, q *queue.Queue, script string) {
	t.Helper()
	reply := false
	for i, token := range strings.Fields(script) {
		switch {
		case token == ">" || token == "<":
			reply = token == "<"
			continue
		case !reply:
			q.Push(entry(t, token))
		default:
			out, err := q.Reply(token[0])
			if got := told(token[0], out, err); got != token {
				t.Fatalf("token %d of %q: got %s, want %s (%v)", i, script, got, token, err)
			}
			if out.Ready != (token[0] == 'Z' && err == nil) {
				t.Errorf("token %d of %q: got ready %v", i, script, out.Ready)
			}
		}
		if err := q.Audit(); err != nil {
			t.Fatalf("token %d of %q: %v", i, script, err)
		}
	}
}

// settled checks that nothing is due.
func settled(t *testing.T, q *queue.Queue) {
	t.Helper()
	if q.Len() != 0 || q.ReadyDue() != 0 || q.Skipping() || q.Copying() {
		t.Errorf("at the end: %d entries, %d ready, skipping %v, copying %v; want nothing due",
			q.Len(), q.ReadyDue(), q.Skipping(), q.Copying())
	}
}

// noisy puts asynchronous messages around every reply of a script.
func noisy(script string) string {
	var out []string
	reply := false
	for token := range strings.FieldsSeq(script) {
		if token == ">" || token == "<" {
			reply = token == "<"
		} else if reply {
			out = append(out, "N", "S", "A", "S")
		}
		out = append(out, token)
	}
	return strings.Join(append(out, "<", "N", "S", "A"), " ")
}

type script struct{ name, text string }

// run plays scripts that end with nothing due, as they are and with
// asynchronous messages in between.
func run(t *testing.T, scripts []script) {
	t.Helper()
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			for _, text := range []string{s.text, noisy(s.text)} {
				var q queue.Queue
				play(t, &q, text)
				settled(t, &q)
				play(t, &q, "> P B E S < 1 2 C Z > Q < T D C Z") // and all is as before
				settled(t, &q)
			}
		})
	}
}

// The proxy's own messages, and what becomes of their replies.
func TestQueue_Hidden(t *testing.T) {
	const check = "B/early E/early C/early "
	const late = "B/late E/late C/late "
	const commit = "B/late-commit E/late-commit C/late-commit "
	const prepare = "C/prepare P/prepare C/prepare P/prepare "
	run(t, []script{
		{"check before an Execute", "> P B Ds " + check + "E S < 1 2 t n 2- D- C- 3- C Z"},
		{"prepared first", "> P B " + prepare + check + "E S < 1 2 3- 1- 3- 1- 2- D- C- 3- C Z"},
		{"by position, not by type", "> B E C " + check + "B E C S < 2 D C 3 2- D- C- 3- 2 D C 3 Z"},
		{"two checks", "> B " + check + "E B " + check + "E S < 2 2- D- C- 3- C 2 2- D- C- 3- C Z"},
		{"early check fails", "> P B " + check + "E S < 1 2 2- E! Z?early"},
		{"early check fails, pipelined", "> B " + check + "E S B E S < 2 2- E! Z?early 2 C Z"},
		{"its Bind fails", "> B " + check + "E S < 2 E! Z?early"},
		{"preparing fails", "> B " + prepare + check + "E S < 2 3- E! Z?prepare"},
		{"late check", "> B E " + late + "S < 2 C 2- C- 3- Z"},
		{"late check fails", "> B E " + late + "S < 2 C 2- E! Z?late"},
		{"client fails before the check", "> B E " + late + "S < 2 E Z?client"},
		{"client fails before the check, told before the check is sent", "> B E < 2 E > " + late + "S < Z?client"},
		{"Sync fails after a late check", "> B E " + late + "S < 2 C 2- C- 3- E Z?client"},
		{"late check before COMMIT fails", "> B " + commit + "E S < 2 2- E! Z~?late-commit > B/rollback E/rollback C/rollback S/rollback < 2- C- 3- Z"},
		{"a block around the segment", "> B E/enclose E E/enclose S+ < 2 C- C C- Z"},
		{"a block around the segment fails", "> B E/enclose E E/enclose S+ < 2 C- E Z~?client > E/rollback S/rollback < C- Z"},
		{"a block around the segment fails at its end", "> B E/enclose E E/enclose S+ < 2 C- C E! Z~?enclose"},
		{"the ROLLBACK after it fails", "> B " + commit + "E S < 2 2- E! Z~?late-commit > B/rollback E/rollback C/rollback S/rollback < E- Z?rollback"},
		{"late check before COMMIT passes", "> B " + commit + "E S < 2 2- C- 3- C Z"},
		{"COMMIT fails after its check", "> B " + commit + "E S < 2 2- C- 3- E Z?client"},
		{"refusal in place of an Execute", "> P B C/raise P/raise B/raise E/raise C/raise S < 1 2 3- 1- 2- E! Z?raise"},
		{"refusal, then skipped", "> C/raise P/raise B/raise E/raise C/raise P B E Q F S < 3- 1- 2- E! Z?raise"},
		{"examined text has an error", "> C/raise P/examine C/raise P/raise B/raise E/raise C/raise S < 3- E Z?examine"},
		{"examined text has none", "> C/raise P/examine C/raise P/raise B/raise E/raise C/raise S < 3- 1- 3- 1- 2- E! Z?raise"},
		{"probe passes", "> B/probe E/probe C/probe S/probe < 2- D- C- 3- Z- > F < V Z"},
		{"probe fails", "> B/probe E/probe C/probe S/probe < E! Z?probe"},
		{"readback", "> B/readback E/readback C/readback S/readback < 2- D@ C- 3- Z-"},
		{"readback fails", "> B/readback E/readback C/readback S/readback < E- Z-?readback"},
		{"rows of others aren't captured", "> B/early E/early C/early S B/readback E/readback C/readback S/readback < 2- D- C- 3- Z 2- D@ C- 3- Z-"},
		{"check after a portal was suspended", "> B E " + check + "E S < 2 D D s 2- D- C- 3- D C Z"},
		{"copy after a check", "> B " + check + "E S d d c S < 2 2- D- C- 3- G C Z"},
		{"copy whose check fails", "> B " + check + "E S d d c S < 2 2- E! Z?early Z"},
		{"copy to the client among checks", "> B " + check + "E " + late + "S < 2 2- D- C- 3- H d d c C 2- C- 3- Z"},
	})
}

// A Query into whose text statements were put.
func TestQueue_Plans(t *testing.T) {
	run(t, []script{
		{"early", "> Q[early,client] < T- D- C- C Z"},
		{"early and rows", "> Q[early,client] < T- D- C- T D D C Z"},
		{"early fails", "> Q[early,client] < T- E! Z?early"},
		{"client fails", "> Q[early,client,late] < T- D- C- T D E Z?client"},
		{"late", "> Q[client,late] < T D C T- C- Z"},
		{"late fails", "> Q[client,late] < T D C T- E! Z?late"},
		{"late alone", "> Q[late] < T- C- Z"},
		{"several transactions", "> Q[early,client,client,early,client] < T- D- C- C C T- D- C- C Z"},
		{"a copy in between", "> Q[early,client,client] d c < T- D- C- G C C Z"},
		{"two copies", "> Q[early,client,client] d c d c < T- D- C- G C G C Z"},
		{"copy to the client", "> Q[client,late] < H d d c C T- C- Z"},
		{"late before COMMIT", "> Q[client,late-commit,client] < C T- C- C Z"},
		{"late before COMMIT fails", "> Q[client,late-commit,client] < C E! Z~?late-commit > B/rollback E/rollback C/rollback S/rollback < 2- C- 3- Z"},
		{"late before COMMIT isn't reached", "> Q[client,late-commit,client] < E Z?client"},
		{"late before the second COMMIT fails", "> Q[client,late-commit,client,client,late-commit,client] < C T- C- C C E! Z~?late-commit > B/rollback E/rollback C/rollback S/rollback < 2- C- 3- Z"},
		{"fails after a COMMIT", "> Q[client,late-commit,client,client] < C T- C- C E Z?client"},
		{"refusal", "> Q[raise] < E! Z?raise"},
		{"position starts anew", "> Q[early,client] Q[early,client] Q < T- D- C- C Z T- D- C- C Z T D C C C Z"},
		{"position starts anew after a failure", "> Q[early,client] Q[early,client] < T- D- C- E Z?client T- D- C- C Z"},
		{"between segments", "> B/early E/early B E S Q[early,client] B E S < 2- C- 2 C Z T- D- C- C Z 2 C Z"},
		{"dropped before it was read", "> P B E Q[early,client] S Q[early,client] < 1 2 E Z?client T- D- C- C Z"},
		{"no statement", "> Q < I Z"},
	})
}

// What can't be an answer is never taken for one.
func TestQueue_Unexpected(t *testing.T) {
	for _, s := range []script{
		{"nothing due", "< C*"},
		{"nothing due, ready", "< Z*"},
		{"nothing due, error", "< E*"},
		{"nothing due after all", "> Q < C Z C*"},
		{"nothing due while skipping", "> P < E Z*"},
		{"another kind", "> P < 2*"},
		{"rows for a Parse", "> P < D*"},
		{"ready before the Sync", "> P S < Z*"},
		{"ready for an Execute", "> E S < Z*"},
		{"description for an Execute", "> E < T*"},
		{"parse complete for a Describe", "> Ds < 1*"},
		{"parameters of a portal", "> Dp < t*"},
		{"suspended Query", "> Q < s*"},
		{"parse complete in a Query", "> Q < 1*"},
		{"ready for a Query without an answer", "> Q < Z*"},
		{"ready for a Query amid its rows", "> Q < T D Z*"},
		{"ready for a plan that isn't done", "> Q[early,client] < T- D- C- Z*"},
		{"more statements than planned", "> Q[early,client] < T- D- C- C C*"},
		{"rows after all that was planned", "> Q[early,client] < T- D- C- C T*"},
		{"rows after the error", "> Q < T E D*"},
		{"ready for a call without an answer", "> F < Z*"},
		{"two answers to a call", "> F < V V*"},
		{"a type that nobody knows", "> Q < ?*"},
		{"replication", "> E < W*"},
	} {
		t.Run(s.name, func(t *testing.T) {
			play(t, &queue.Queue{}, s.text)
			if s.text[0] == '>' {
				play(t, &queue.Queue{}, noisy(s.text))
			}
		})
	}
}

// Sync and copy data that a server in copy-in mode reads or doesn't.
func TestQueue_Copy(t *testing.T) {
	run(t, []script{
		{"Sync is ignored in copy-in", "> P B E S d d c S < 1 2 G C Z"},
		{"several Syncs are", "> P B E S S d S d S c S < 1 2 G C Z"},
		{"pushed late", "> P B E < 1 2 G > S d d c < C > S < Z"},
		{"two copies, each with a Sync", "> Q d c S d c < G C G C Z"},
		{"in the second one only", "> Q d c d S c S < G C G C Z Z"},
		{"data without a copy", "> Q d d c < C Z > d c f < > S < Z"},
		{"data after the copy ended", "> Q d c d f < G C Z"},
		{"end without a copy", "> P c B f E d S < 1 2 C Z"},
		{"refused before it began", "> P B E S d d c S < 1 2 E Z?client Z"},
		{"refused before it began, no Sync before the data", "> P B E d d c S < 1 2 E Z?client"},
		{"fails at its data", "> P B E d d c S < 1 2 G E Z?client"},
		{"fails while data is on its way", "> P B E d < 1 2 G E > d d c S < Z?client"},
		{"fails at its data, Sync read before", "> P B E S d d c S < 1 2 G E Z?client"},
		{"fails before it read the Sync", "> P B E S d d c S < 1 2 G E Z?client Z"},
		{"fails before it read the Sync, told at once", "> P B E S < 1 2 G E Z?client > d d c S < Z"},
		{"fails before it read the Sync, and the client lets it be", "> P B E S < 1 2 G E Z?client > P B E S < 1 2 C Z"},
		{"fails before it read the Sync, told late", "> P B E S < 1 2 G E > d d c S < Z?client Z"},
		{"fails before it read the Sync, more to come", "> P B E S d c S P B E S < 1 2 G E Z?client Z 1 2 C Z"},
		{"fails after it read the Sync, more to come", "> P B E S d c S P B E S < 1 2 G E Z?client 1 2 C Z"},
		{"fails before it read the Sync, then a Query", "> P B E S d c S Q < 1 2 G E Z?client Z C Z"},
		{"fails after it read the Sync, then a Query", "> P B E S d c S Q < 1 2 G E Z?client C Z"},
		{"fails before it read the Sync, then a call", "> P B E S d c S F < 1 2 G E Z?client Z V Z"},
		{"fails before it read the Sync, then Syncs", "> P B E S d c S S S < 1 2 G E Z?client Z Z Z"},
		{"fails after it read the Sync, then Syncs", "> P B E S d c S S S < 1 2 G E Z?client Z Z"},
		{"fails before it read either Sync", "> P B E S S d c S Q < 1 2 G E Z?client Z Z C Z"},
		{"CopyFail", "> P B E S d f S < 1 2 G E Z?client"},
		{"CopyFail without data", "> P B E S f S < 1 2 G E Z?client"},
		{"CopyFail in a Query", "> Q d f < G E Z?client"},
		{"Query fails before it read a Sync", "> Q S d c < G E Z?client Z"},
		{"Query fails after it read a Sync", "> Q S d c < G E Z?client"},
		{"to the client", "> P B E S < 1 2 H d d c C Z"},
		{"to the client, fails", "> P B E S < 1 2 H d E Z?client"},
		{"to the client does not eat a Sync", "> P B E S S < 1 2 H d c C Z Z"},
		{"to the client in a Query", "> Q < H d d c C Z"},
		{"rows are no copy", "> P B E S d c S < 1 2 D C Z Z"},
	})
}

// The guess about a Sync during a copy that failed is made once.
func TestQueue_GuessEnds(t *testing.T) {
	for _, s := range []script{
		{"a reply came in between", "> P B E S d c S P S < 1 2 G E Z?client 1 Z Z*"},
		{"the copy succeeded", "> P B E S d c S < 1 2 G C Z Z*"},
		{"one more than was guessed", "> P B E S d c S < 1 2 G E Z?client Z Z*"},
		{"the copy never began", "> P B E S d c S < 1 2 E Z?client Z Z*"},
	} {
		t.Run(s.name, func(t *testing.T) { play(t, &queue.Queue{}, s.text) })
	}
}

// What the request side said of a Sync that the server read during a copy
// holds for the ReadyForQuery that comes in its place.
func TestQueue_CopyKeepsWhatSyncSaid(t *testing.T) {
	for name, replies := range map[string]string{
		"copied":                     "GCZ",
		"failed, the Sync was read":  "GEZ",
		"failed, it wasn't":          "GEZZ",
		"failed, nothing comes next": "GE|Z",
	} {
		t.Run(name, func(t *testing.T) {
			var q queue.Queue
			q.Push(queue.Entry{Kind: queue.Execute})
			q.Push(queue.Entry{Kind: queue.Sync, Ends: 5, Tagged: true})
			last := func() {
				q.Push(queue.Entry{Kind: queue.CopyData})
				q.Push(queue.Entry{Kind: queue.CopyEnd})
				q.Push(queue.Entry{Kind: queue.Sync, Ends: 2})
			}
			at := strings.IndexByte(replies, '|')
			if at < 0 {
				last()
			}
			var got []string
			for _, r := range []byte(strings.ReplaceAll(replies, "|", "")) {
				out, err := q.Reply(r)
				if err != nil {
					t.Fatal(err)
				}
				if out.Ready {
					got = append(got, fmt.Sprint(out.Entry.Kind, out.Entry.Ends, out.Entry.Tagged))
				}
			}
			want := []string{"Sync 7 true"}
			switch name {
			case "failed, it wasn't":
				want = append(want, "Sync 0 false")
			case "failed, nothing comes next":
				want = []string{"Sync 5 true"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestQueue_Push(t *testing.T) {
	var q queue.Queue
	play(t, &q, "> d c f")
	settled(t, &q)
	play(t, &q, "> Q d d d d d")
	if got, want := q.Len(), 2; got != want {
		t.Errorf("entries for a Query and much data: got %d, want %d", got, want)
	}
	play(t, &q, "> < G C Z > E < E > P B Ds Dp E C Q F d c f")
	if q.Len() != 0 || !q.Skipping() {
		t.Errorf("after an error: %d entries, skipping %v, want none, true", q.Len(), q.Skipping())
	}
	play(t, &q, "> S")
	if q.Len() != 1 || q.Skipping() {
		t.Errorf("after the Sync: %d entries, skipping %v, want 1, false", q.Len(), q.Skipping())
	}
	play(t, &q, "> < Z?client")
	settled(t, &q)
}

func TestQueue_MayCommit(t *testing.T) {
	for entries, want := range map[string]bool{
		"":        false,
		"P B E":   false,
		"E d":     false,
		"P B E S": true,
		"Q":       true,
		"F":       true,
	} {
		var q queue.Queue
		play(t, &q, "> "+entries)
		if got := q.MayCommit(); got != want {
			t.Errorf("%q: got %v, want %v", entries, got, want)
		}
	}
	var q queue.Queue
	q.Push(queue.Entry{Kind: queue.Execute, Ends: 1})
	if !q.MayCommit() {
		t.Error("an Execute that ends a transaction: got false, want true")
	}
	play(t, &q, "> < E")
	if q.MayCommit() {
		t.Error("after it failed: got true, want false")
	}
}

// An outcome holds what the request side said of its entry.
func TestQueue_Entry(t *testing.T) {
	var q queue.Queue
	for i := range 20 {
		q.Push(queue.Entry{Kind: queue.Parse, Confirms: i})
		q.Push(queue.Entry{Kind: queue.Sync, Checked: true, Ends: uint8(i), Tagged: i%2 == 0})
	}
	for i := range 20 {
		out, err := q.Reply('1')
		if err != nil || out.Entry == nil || out.Entry.Confirms != i {
			t.Fatalf("Parse %d: got %+v, %v", i, out.Entry, err)
		}
		out, err = q.Reply('Z')
		if e := out.Entry; err != nil || e == nil || !e.Checked || e.Ends != uint8(i) || e.Tagged != (i%2 == 0) {
			t.Fatalf("Sync %d: got %+v, %v", i, out.Entry, err)
		}
	}
	for _, r := range "NSA" {
		if out, err := q.Reply(byte(r)); err != nil || out.Entry != nil || out.Verdict != queue.Forward {
			t.Errorf("%c: got %+v, %v, want it forwarded", r, out, err)
		}
	}
}

// An error in a Query finds the entry whose positions it speaks of, and one
// in an extended request as well, although more is dropped with it.
func TestQueue_EntryOfError(t *testing.T) {
	var q queue.Queue
	shift := func(int) int { return 7 }
	q.Push(queue.Entry{Kind: queue.Query, Shift: shift})
	if out, err := q.Reply('E'); err != nil || out.Entry == nil || out.Entry.Shift == nil {
		t.Errorf("got %+v, %v, want the entry", out, err)
	}
	q.Reply('Z')
	q.Push(queue.Entry{Kind: queue.Execute, Ends: 3})
	play(t, &q, "> P B E S")
	if out, err := q.Reply('E'); err != nil || out.Entry == nil || out.Entry.Kind != queue.Execute || out.Entry.Ends != 3 {
		t.Errorf("got %+v, %v, want the Execute", out.Entry, err)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for k := queue.Parse; k <= queue.CopyEnd; k++ {
		seen[k.String()] = true
	}
	for p := queue.Client; p <= queue.Rollback; p++ {
		seen[p.String()] = true
	}
	if got, want := len(seen), int(queue.CopyEnd)+int(queue.Rollback)+2; got != want {
		t.Errorf("got %d different names, want %d", got, want)
	}
}
