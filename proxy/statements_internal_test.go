package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func known(class sqlrewrite.Class) statement { return statement{known: true, class: class} }

// A name is what its last Parse made it, as long as that is certain; anything
// else is unknown, which may do anything.
func TestStatements_Names(t *testing.T) {
	name := func(s string) []byte { return []byte(s) }
	reading, committing := known(sqlrewrite.Read), known(sqlrewrite.Commit)
	for _, c := range []struct {
		name string
		do   func(s *statements)
		want statement // of statement "s", bound to portal "p" in the end
	}{
		{"never parsed", func(*statements) {}, statement{}},
		{"parsed", func(s *statements) { s.parse(name("s"), reading) }, reading},
		{"parsed twice", func(s *statements) { s.parse(name("s"), committing); s.parse(name("s"), reading) }, statement{}},
		{"closed", func(s *statements) { s.parse(name("s"), reading); s.close(name("s")) }, statement{}},
		{"closed, parsed", func(s *statements) {
			s.parse(name("s"), committing)
			s.close(name("s"))
			s.parse(name("s"), reading)
		}, reading},
		{"carried out", func(s *statements) { s.parse(name("s"), reading); s.carriedOut(false) }, reading},
		{"failed", func(s *statements) { s.parse(name("s"), reading); s.carriedOut(true) }, statement{}},
		{"an earlier one, then failed", func(s *statements) {
			s.parse(name("s"), reading)
			s.carriedOut(false)
			s.parse(name("other"), committing)
			s.carriedOut(true)
		}, reading},
		{"close that failed", func(s *statements) {
			s.parse(name("s"), committing)
			s.carriedOut(false)
			s.close(name("s"))
			s.parse(name("s"), reading)
			s.carriedOut(true)
		}, statement{}},
		{"all dropped", func(s *statements) { s.parse(name("s"), reading); s.dropAll() }, statement{}},
		{"end of a transaction", func(s *statements) { s.parse(name("s"), reading); s.endTransaction() }, reading},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s statements
			c.do(&s)
			s.bind(name("p"), name("s"))
			if got := s.portal(name("p")); got.known != c.want.known || got.class != c.want.class {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// The unnamed statement may be parsed again and again.
func TestStatements_Unnamed(t *testing.T) {
	var s statements
	for _, class := range []sqlrewrite.Class{sqlrewrite.Begin, sqlrewrite.Read, sqlrewrite.Commit} {
		s.parse(nil, known(class))
		s.bind(nil, nil)
		if got := s.portal(nil); !got.known || got.class != class {
			t.Errorf("got %+v, want %v", got, class)
		}
	}
}

func TestStatements_Portals(t *testing.T) {
	for what, end := range map[string]func(s *statements){
		"closed":             func(s *statements) { s.closePortal([]byte("p")) },
		"end of transaction": func(s *statements) { s.endTransaction() },
		"all dropped":        func(s *statements) { s.dropAll() },
		"a segment failed":   func(s *statements) { s.carriedOut(true) },
	} {
		var s statements
		s.parse([]byte("s"), known(sqlrewrite.Read))
		s.bind([]byte("p"), []byte("s"))
		s.close([]byte("s"))
		if got := s.portal([]byte("p")); !got.known {
			t.Errorf("%s: a portal went with its statement, which it doesn't", what)
		}
		end(&s)
		if got := s.portal([]byte("p")); got.known {
			t.Errorf("%s: got %+v, want an unknown one", what, got)
		}
	}
}

// A session that is never asked what was carried out keeps no more than a
// bounded number of names that are gone.
func TestStatements_Bounded(t *testing.T) {
	var s statements
	for i := range 100 * maxTouched {
		name := fmt.Appendf(nil, "s%d", i)
		s.parse(name, known(sqlrewrite.Read))
		if i%2 == 0 {
			s.close(name)
		}
	}
	if got := len(s.touched); got > maxTouched {
		t.Errorf("got %d names, want at most %d", got, maxTouched)
	}
	if got := len(s.prepared); got > maxTouched {
		t.Errorf("got %d statements that may not exist, want at most %d", got, maxTouched)
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
