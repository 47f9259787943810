package sqlrewrite_test

import (
	"testing"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func TestInsert(t *testing.T) {
	type ins = sqlrewrite.Insertion
	for _, c := range []struct {
		name, text string
		ins        []ins
		want       string
	}{
		{"nothing", "abc", nil, "abc"},
		{"the beginning", "abc", []ins{{0, "X"}}, "Xabc"},
		{"the end", "abc", []ins{{3, "X"}}, "abcX"},
		{"several", "abc", []ins{{0, "X"}, {1, "Y"}, {3, "Z"}}, "XaYbcZ"},
		{"one place", "abc", []ins{{1, "X"}, {1, "Y"}}, "aXYbc"},
		{"an empty text", "", []ins{{0, "X"}}, "X"},
	} {
		if got := string(sqlrewrite.Insert([]byte("> "), []byte(c.text), c.ins)); got != "> "+c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, "> "+c.want)
		}
	}
}

// TestPositions goes through every character of a text with insertions
// and compares it with the character that it came from.
func TestPositions(t *testing.T) {
	type ins = sqlrewrite.Insertion
	for _, c := range []struct {
		name, text string
		ins        []ins
	}{
		{"nothing", "SELECT 1", nil},
		{"the beginning", "SELECT 1", []ins{{0, "CHECK;"}}},
		{"the end", "SELECT 1", []ins{{8, "\n;CHECK"}}},
		{"in between", "SELECT 'é日'; UPDATE 日 SET é", []ins{{0, "CHECK;"}, {15, "LATE;"}, {15, "CHECK;"}, {28, "\n;LATE"}}},
		{"not ASCII itself", "é; é", []ins{{2, "日本"}, {4, "é"}}},
	} {
		marked, origin := mark(c.text, c.ins)
		for i := range marked {
			if got := sqlrewrite.NewPositions([]byte(c.text), c.ins).Original(i + 1); got != origin[i] {
				t.Errorf("%s: position %d (%q): got %d, want %d", c.name, i+1, marked[i], got, origin[i])
			}
		}
		end := utf8.RuneCountInString(c.text) + 1
		if got := sqlrewrite.NewPositions([]byte(c.text), c.ins).Original(len(marked) + 1); got != end {
			t.Errorf("%s: the end: got %d, want %d", c.name, got, end)
		}
		beyond := len(marked) + 2
		if got := sqlrewrite.NewPositions([]byte(c.text), c.ins).Original(beyond); got != beyond {
			t.Errorf("%s: behind the end: got %d, want %d", c.name, got, beyond)
		}
	}
}

// mark returns the characters of the text that Insert makes, and for each its
// place in the original, or 0; that of the separator is the end.
func mark(text string, ins []sqlrewrite.Insertion) (chars []rune, origin []int) {
	at, n := 0, 0
	for i := 0; i <= len(text); i++ {
		for at < len(ins) && ins[at].At == i {
			for j, r := range ins[at].Text {
				chars, origin = append(chars, r), append(origin, 0)
				if i == len(text) && ins[at].Text[:j+1] == sqlrewrite.Separator {
					origin[len(origin)-1] = n + 1
				}
			}
			at++
		}
		if i < len(text) && utf8.RuneStart(text[i]) {
			r, _ := utf8.DecodeRuneInString(text[i:])
			n++
			chars, origin = append(chars, r), append(origin, n)
		}
	}
	return chars, origin
}

// TestPositions_Execute: errors of what was prepared have their place in
// the text of the PREPARE.
func TestPositions_Execute(t *testing.T) {
	const check = "CHECK;"
	for _, c := range []struct {
		text      string
		pos, want int
	}{
		{"EXECUTE p", 10, 10},
		{"EXECUTE p", 3, 3},
		{" execute p;", 10, 10},
		{"EXECUTE p (é, nobody)", len(check) + 15, 15},
		{"EXECUTE p (é, nobody)", len(check) + 22, len(check) + 22},
		{"EXECUTE p; SELECT nobody", len(check) + 19, 19},
		{"EXECUTE p (f(1), nobody);", len(check) + 18, 18},
		{"EXECUTE p -- ;\nEXECUTE p", len(check) + 16, 16},
		{"EXECUTE p (1) p", len(check) + 15, 15},
		{"EXECUTE p (1", len(check) + 12, 12},
		{"UPDATE p", len(check) + 8, 8},
	} {
		ins := []sqlrewrite.Insertion{{At: 0, Text: check}}
		if got := sqlrewrite.NewPositions([]byte(c.text), ins).Original(c.pos); got != c.want {
			t.Errorf("%s: %d: got %d, want %d", c.text, c.pos, got, c.want)
		}
	}
}

// TestPositions_Bytes: a text in a single-byte encoding has as many
// characters as bytes.
func TestPositions_Bytes(t *testing.T) {
	ins := []sqlrewrite.Insertion{{At: 4, Text: "CHECK;"}}
	if got, want := sqlrewrite.NewPositions([]byte("'\xe9'; selec"), ins).Original(11), 5; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
