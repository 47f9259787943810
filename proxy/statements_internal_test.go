package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func known(class sqlrewrite.Class) statement { return statement{known: true, class: class} }

func parsed(n *names, name []byte, to statement, segment int) int {
	return n.add(change{name: cut(name), to: to, segment: segment})
}

func closed(n *names, name []byte, segment int) int {
	return n.add(change{name: cut(name), closes: true, segment: segment})
}

// A name is what the last Parse made of it that was carried out, or that comes
// before it in its own segment. Anything else is unknown, which may do
// anything.
func TestNames_Stands(t *testing.T) {
	name := []byte("s")
	reading, committing := known(sqlrewrite.Read), known(sqlrewrite.Commit)
	calling := statement{known: true, flags: sqlrewrite.MayCommit}
	for _, c := range []struct {
		name    string
		do      func(n *names)
		want    statement // of name "s" in segment 1
		pending bool      // and it isn't certain
	}{
		{name: "never parsed", do: func(*names) {}},
		{name: "parsed in the segment", do: func(n *names) { parsed(n, name, reading, 1) }, want: reading},
		{name: "parsed in the segment before", do: func(n *names) { parsed(n, name, reading, 0) }, want: reading, pending: true},
		{name: "another name is under way", do: func(n *names) { parsed(n, []byte("x"), reading, 0) }},
		{name: "confirmed", do: func(n *names) { n.confirm(parsed(n, name, reading, 0)) }, want: reading},
		{name: "not carried out", do: func(n *names) { n.decide(parsed(n, name, reading, 0)) }},
		{name: "a taken name keeps its meaning", do: func(n *names) {
			n.confirm(parsed(n, name, committing, 0))
			n.decide(parsed(n, name, reading, 0))
		}, want: committing},
		{name: "a reply to the next says that it was not carried out", do: func(n *names) {
			parsed(n, name, reading, 0)
			n.confirm(parsed(n, []byte("x"), committing, 0))
		}},
		{name: "a ReadyForQuery says nothing of what comes after it", do: func(n *names) {
			last := n.last
			parsed(n, name, reading, 0)
			n.decide(last)
		}, want: reading, pending: true},
		{name: "closed in the segment", do: func(n *names) {
			n.confirm(parsed(n, name, reading, 0))
			closed(n, name, 1)
		}},
		{name: "closed", do: func(n *names) {
			n.confirm(parsed(n, name, reading, 0))
			n.confirm(closed(n, name, 0))
		}},
		{name: "a Close that was not carried out", do: func(n *names) {
			n.confirm(parsed(n, name, reading, 0))
			n.decide(closed(n, name, 0))
		}, want: reading},
		{name: "closed and parsed", do: func(n *names) {
			n.confirm(parsed(n, name, committing, 0))
			closed(n, name, 1)
			parsed(n, name, reading, 1)
		}, want: reading},
		{name: "all dropped", do: func(n *names) {
			n.confirm(parsed(n, name, reading, 0))
			n.drop("")
		}},
		{name: "all dropped, perhaps not what may commit", do: func(n *names) {
			n.confirm(parsed(n, name, calling, 0))
			n.drop("")
		}, want: unread()},
		{name: "another dropped", do: func(n *names) {
			n.confirm(parsed(n, name, reading, 0))
			n.drop("x")
		}, want: reading},
		{name: "it was dropped", do: func(n *names) {
			n.confirm(parsed(n, name, calling, 0))
			n.drop("s")
		}, want: unread()},
		{name: "all dropped while it was under way", do: func(n *names) {
			last := parsed(n, name, calling, 0)
			n.drop("")
			n.confirm(last)
		}, want: unread()},
		{name: "a long name", do: func(n *names) {
			n.confirm(parsed(n, []byte("s"+strings.Repeat("x", 100)), reading, 0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n names
			c.do(&n)
			got, certain := n.stands(name, 1)
			if got.known != c.want.known || got.class != c.want.class || got.flags != c.want.flags {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if certain == c.pending {
				t.Errorf("certain: got %v, want %v", certain, !c.pending)
			}
		})
	}
}

// DISCARD ALL and DEALLOCATE ALL leave the unnamed statement.
func TestNames_Unnamed(t *testing.T) {
	var n names
	n.confirm(parsed(&n, nil, known(sqlrewrite.Commit), 0))
	n.drop("")
	if got, _ := n.stands(nil, 1); !got.known {
		t.Error("the unnamed statement went with the others")
	}
	last := parsed(&n, nil, known(sqlrewrite.Begin), 0)
	n.drop("")
	n.confirm(last)
	if got, _ := n.stands(nil, 1); got.class != sqlrewrite.Begin {
		t.Errorf("got %+v, want the last one", got)
	}
}

// Only a name that is written plainly is taken for the only one.
func TestDropsName(t *testing.T) {
	for text, want := range map[string]string{
		"DEALLOCATE q":              "q",
		"deallocate  Prepare\tQ_1":  "q_1",
		"DEALLOCATE PREPARE":        "prepare",
		"DEALLOCATE ALL":            "",
		"DEALLOCATE PREPARE all":    "",
		"DEALLOCATE":                "",
		`DEALLOCATE "q"`:            "",
		"DEALLOCATE q/**/":          "",
		"DEALLOCATE /*x*/ q":        "",
		"DEALLOCATE \u00e9":         "",
		"DEALLOCATE q\u00a0":        "",
		"DEALLOCATE \u212a":         "",
		"DEALLOCATE 1":              "",
		"DISCARD ALL":               "",
		"DEALLOCATE prepare q more": "",
	} {
		if got := dropsName([]byte(text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// PostgreSQL cuts names.
func TestNames_Long(t *testing.T) {
	var n names
	long := []byte(strings.Repeat("x", maxName))
	n.confirm(parsed(&n, append(long, "abc"...), known(sqlrewrite.Read), 0))
	if got, _ := n.stands(append(long, "def"...), 1); !got.known {
		t.Error("a name that is the same where PostgreSQL cuts it is unknown")
	}
}

// A client that drops its statements behind the proxy's back doesn't make it
// remember ever more names.
func TestNames_Bounded(t *testing.T) {
	var n names
	for i := range 3 * maxNames {
		n.confirm(parsed(&n, fmt.Appendf(nil, "s%d", i), known(sqlrewrite.Read), 0))
		n.decide(parsed(&n, fmt.Appendf(nil, "failed%d", i), known(sqlrewrite.Read), 0))
	}
	if got := len(n.prepared); got > maxNames {
		t.Errorf("got %d statements, want at most %d", got, maxNames)
	}
	if got := len(n.changes); got > 0 {
		t.Errorf("got %d changes under way", got)
	}
}

// The bound holds for statements that may commit in the middle too, and what is
// forgotten of them isn't taken for anything else.
func TestNames_BoundedMayCommit(t *testing.T) {
	var n names
	commits := statement{known: true, class: sqlrewrite.MayWrite, flags: sqlrewrite.MayCommit}
	for i := range 3 * maxNames {
		n.confirm(parsed(&n, fmt.Appendf(nil, "s%d", i), commits, 0))
	}
	if got := len(n.prepared); got > maxNames {
		t.Errorf("got %d statements, want at most %d", got, maxNames)
	}
	got, certain := n.stands([]byte("s0"), 1)
	if want := forgotten(); got.known || got.flags != want.flags || !certain {
		t.Errorf("the first: got %+v, want %+v", got, want)
	}
}

// Nor does one whose statements are more than others: then all are taken for
// the worst, the settings of a tag included.
func TestNames_Forgotten(t *testing.T) {
	setting := known(sqlrewrite.MayWrite)
	setting.settings = []sqlrewrite.Setting{{Kind: sqlrewrite.Set, Name: "fence.key", Value: "k"}}
	for name, st := range map[string]statement{"may commit": {known: true, flags: sqlrewrite.MayCommit}, "tags": setting} {
		for stage, take := range map[string]func(n *names, number int){"confirmed": (*names).confirm, "never answered": func(*names, int) {}} {
			t.Run(name+" "+stage, func(t *testing.T) {
				var n names
				for i := range 3 * maxNames {
					take(&n, parsed(&n, fmt.Appendf(nil, "s%d", i), st, 0))
				}
				if got := len(n.prepared) + len(n.changes); got > 2*maxNames {
					t.Errorf("got %d names, want at most %d", got, 2*maxNames)
				}
				got, _ := n.stands([]byte("s0"), 1)
				if got.known || got.flags&sqlrewrite.MayCommit == 0 || len(got.settings) != 1 || got.settings[0].Kind != sqlrewrite.Unknown {
					t.Errorf("a name that was given up: got %+v", got)
				}
			})
		}
	}
}

// What the backend discards after an error is not remembered, however long the
// client goes on without a Sync.
func TestSession_PushChange(t *testing.T) {
	var s session
	push := func(name string) {
		t.Helper()
		if err := s.pushChange(queue.Entry{Kind: queue.Parse}, s.parsed([]byte(name), known(sqlrewrite.Read))); err != nil {
			t.Fatal(err)
		}
	}
	push("fails")
	if _, err := s.queue.Reply(wire.ErrorResponse); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		push(fmt.Sprint("s", i))
	}
	if got, want := len(s.names.changes), 1; got != want {
		t.Errorf("got %d changes under way, want %d", got, want)
	}
	if err := s.push(queue.Entry{Kind: queue.Sync}); err != nil {
		t.Fatal(err)
	}
	out, err := s.queue.Reply(wire.ReadyForQuery)
	if err != nil {
		t.Fatal(err)
	}
	if s.names.decide(out.Entry.Confirms); len(s.names.changes) != 0 {
		t.Errorf("got %d changes after the ReadyForQuery", len(s.names.changes))
	}
}

// What is kept of a statement or a portal doesn't grow with its settings.
func TestShort(t *testing.T) {
	got := short([]sqlrewrite.Setting{
		{Kind: sqlrewrite.Set, Name: "fence.key", Value: strings.Repeat("x", maxSetting)},
		{Kind: sqlrewrite.Set, Name: "fence.tokens", Value: strings.Repeat("x", maxSetting+1)},
	})
	if got[0].Kind != sqlrewrite.Set || len(got[0].Value) != maxSetting {
		t.Errorf("a value of %d bytes: got %v with %d", maxSetting, got[0].Kind, len(got[0].Value))
	}
	if got[1].Kind != sqlrewrite.Unknown || got[1].Value != "" {
		t.Errorf("a longer value: got %v with %d bytes", got[1].Kind, len(got[1].Value))
	}
}

// Portals that a client opens without end are forgotten, and may then be
// anything.
func TestPortals_Bounded(t *testing.T) {
	var ps portals
	for i := range 3 * maxPortals {
		ps.bind(fmt.Appendf(nil, "p%d", i), known(sqlrewrite.Read), 1)
	}
	if got := len(ps.bound); got > maxPortals {
		t.Errorf("got %d portals, want at most %d", got, maxPortals)
	}
	if got, certain := ps.of([]byte("p0"), 1); certain || got.flags&sqlrewrite.MayCommit == 0 || len(got.settings) == 0 {
		t.Errorf("a portal that was given up: got %+v, certain %v", got, certain)
	}
	ps.end()
	if got, _ := ps.of([]byte("p0"), 1); got.flags != 0 {
		t.Errorf("after the end of all: got %+v", got)
	}
}

func TestPortals(t *testing.T) {
	p := []byte("p")
	for _, c := range []struct {
		name           string
		do             func(p *portals)
		known, certain bool // of portal "p" in segment 1
	}{
		{"never bound", func(*portals) {}, false, false},
		{"bound in the segment", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 1) }, true, true},
		{"bound before", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 0) }, true, false},
		{"closed", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 1); ps.close(p, 1) }, false, false},
		{"its transaction ended", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 0); ps.endBefore(1) }, false, false},
		{"another transaction ended", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 1); ps.endBefore(1) }, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ps portals
			c.do(&ps)
			if got, certain := ps.of(p, 1); got.known != c.known || certain != c.certain {
				t.Errorf("got %+v, certain %v", got, certain)
			}
		})
	}
}

// A portal of a wide statement may be left when what was to take its place, or to
// close it, was not carried out.
func TestPortals_Wide(t *testing.T) {
	p, wide := []byte("p"), statement{wide: true}
	for _, c := range []struct {
		name string
		do   func(p *portals) // ends with segment 2
		want bool
	}{
		{"closed", func(ps *portals) { ps.bind(p, wide, 1); ps.close(p, 2); ps.endBefore(3) }, true},
		{"bound again", func(ps *portals) {
			ps.bind(p, wide, 1)
			ps.bind(p, known(sqlrewrite.Read), 2)
			ps.endBefore(3)
		}, true},
		{"closed for certain", func(ps *portals) { ps.bind(p, wide, 1); ps.close(p, 2); ps.carriedOut(3); ps.endBefore(4) }, false},
		{"closed in the segment", func(ps *portals) { ps.bind(p, wide, 1); ps.close(p, 2); ps.carriedOut(2); ps.endBefore(3) }, true},
		{"of a read", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 1); ps.close(p, 2); ps.endBefore(3) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ps portals
			c.do(&ps)
			if got, _ := ps.of(p, 3); got.wide != c.want {
				t.Errorf("wide: got %v, want %v", got.wide, c.want)
			}
		})
	}
}

// A tag is found wherever the text is cut.
func TestMentions(t *testing.T) {
	const set = "SET fence.key = 'a'"
	for _, filler := range []string{"", strings.Repeat("x ", 1000)} {
		text := filler + set + filler
		for _, size := range []int{1, 2, 3, 7, 100, overlap - 1, overlap, overlap + 1, 1 << 20} {
			for first := range min(size, len(text)) {
				if !mentioned(text, first, size) {
					t.Fatalf("not found in chunks of %d after one of %d", size, first)
				}
				if size > 100 && first > 2*len(set) && filler == "" {
					break
				}
			}
		}
	}
	if mentioned(strings.Repeat("SELECT 1 FROM fences; ", 1000), 5, 100) {
		t.Error("found where there is none")
	}
}

// mentioned cuts a text into chunks of the given size after a first one.
func mentioned(text string, first, size int) bool {
	var m mentions
	found := first > 0 && m.in([]byte(text[:first]))
	for rest := text[first:]; rest != ""; {
		n := min(size, len(rest))
		found = m.in([]byte(rest[:n])) || found
		rest = rest[n:]
	}
	return found
}
