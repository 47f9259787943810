package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func known(class sqlrewrite.Class) statement { return statement{known: true, class: class} }

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
		{name: "parsed in the segment", do: func(n *names) { n.parse(name, reading, 1) }, want: reading},
		{name: "parsed in the segment before", do: func(n *names) { n.parse(name, reading, 0) }, want: reading, pending: true},
		{name: "another name is under way", do: func(n *names) { n.parse([]byte("x"), reading, 0) }},
		{name: "confirmed", do: func(n *names) { n.confirm(n.parse(name, reading, 0)) }, want: reading},
		{name: "not carried out", do: func(n *names) { n.decide(n.parse(name, reading, 0)) }},
		{name: "a taken name keeps its meaning", do: func(n *names) {
			n.confirm(n.parse(name, committing, 0))
			n.decide(n.parse(name, reading, 0))
		}, want: committing},
		{name: "a reply to the next says that it was not carried out", do: func(n *names) {
			n.parse(name, reading, 0)
			n.confirm(n.parse([]byte("x"), committing, 0))
		}},
		{name: "a ReadyForQuery says nothing of what comes after it", do: func(n *names) {
			last := n.last
			n.parse(name, reading, 0)
			n.decide(last)
		}, want: reading, pending: true},
		{name: "closed in the segment", do: func(n *names) {
			n.confirm(n.parse(name, reading, 0))
			n.close(name, 1)
		}},
		{name: "closed", do: func(n *names) {
			n.confirm(n.parse(name, reading, 0))
			n.confirm(n.close(name, 0))
		}},
		{name: "a Close that was not carried out", do: func(n *names) {
			n.confirm(n.parse(name, reading, 0))
			n.decide(n.close(name, 0))
		}, want: reading},
		{name: "closed and parsed", do: func(n *names) {
			n.confirm(n.parse(name, committing, 0))
			n.close(name, 1)
			n.parse(name, reading, 1)
		}, want: reading},
		{name: "all dropped", do: func(n *names) {
			n.confirm(n.parse(name, reading, 0))
			n.drop("")
		}},
		{name: "all dropped, perhaps not what may commit", do: func(n *names) {
			n.confirm(n.parse(name, calling, 0))
			n.drop("")
		}, want: unread()},
		{name: "another dropped", do: func(n *names) {
			n.confirm(n.parse(name, reading, 0))
			n.drop("x")
		}, want: reading},
		{name: "it was dropped", do: func(n *names) {
			n.confirm(n.parse(name, calling, 0))
			n.drop("s")
		}, want: unread()},
		{name: "all dropped while it was under way", do: func(n *names) {
			last := n.parse(name, calling, 0)
			n.drop("")
			n.confirm(last)
		}, want: unread()},
		{name: "a long name", do: func(n *names) {
			n.confirm(n.parse([]byte("s"+strings.Repeat("x", 100)), reading, 0))
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
	n.confirm(n.parse(nil, known(sqlrewrite.Commit), 0))
	n.drop("")
	if got, _ := n.stands(nil, 1); !got.known {
		t.Error("the unnamed statement went with the others")
	}
	last := n.parse(nil, known(sqlrewrite.Begin), 0)
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
	n.confirm(n.parse(append(long, "abc"...), known(sqlrewrite.Read), 0))
	if got, _ := n.stands(append(long, "def"...), 1); !got.known {
		t.Error("a name that is the same where PostgreSQL cuts it is unknown")
	}
}

// A client that drops its statements behind the proxy's back doesn't make it
// remember ever more names.
func TestNames_Bounded(t *testing.T) {
	var n names
	for i := range 3 * maxNames {
		n.confirm(n.parse(fmt.Appendf(nil, "s%d", i), known(sqlrewrite.Read), 0))
		n.decide(n.parse(fmt.Appendf(nil, "failed%d", i), known(sqlrewrite.Read), 0))
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
		n.confirm(n.parse(fmt.Appendf(nil, "s%d", i), commits, 0))
	}
	if got := len(n.prepared); got > maxNames {
		t.Errorf("got %d statements, want at most %d", got, maxNames)
	}
	got, certain := n.stands([]byte("s0"), 1)
	if want := unread(); got.known || got.flags != want.flags || !certain {
		t.Errorf("the first: got %+v, want %+v", got, want)
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
		{"closed", func(ps *portals) { ps.bind(p, known(sqlrewrite.Read), 1); ps.close(p) }, false, false},
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
