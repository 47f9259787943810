package wire_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// parse reads one script.
func parse(t *testing.T, text string) *wire.Script {
	t.Helper()
	found, err := wire.Parse("test.wire", text)
	if err != nil || len(found) != 1 {
		t.Fatalf("got %d scripts, %v, want one", len(found), err)
	}
	return found[0]
}

// Every script that is written down again is read as the same, made ones too.
func TestScript_String(t *testing.T) {
	all := append(scripts(t, "testdata"), scripts(t, "testdata/secure")...)
	for i := range uint64(20) {
		all = append(all, wire.Generate(rand.New(rand.NewPCG(1, i)), 15))
	}
	for _, s := range all {
		again := parse(t, s.String())
		ignored := cmp.Options{
			cmpopts.IgnoreFields(wire.Script{}, "File"), cmpopts.IgnoreFields(wire.Step{}, "Line"),
			cmpopts.IgnoreUnexported(wire.Message{}), cmpopts.EquateEmpty(),
		}
		if diff := cmp.Diff(s, again, ignored); diff != "" {
			t.Errorf("%s: read again (-want +got):\n%s", s.Name, diff)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a step before a script", `> S`, "before the first script"},
		{"a script without steps", "script a\nsetup SELECT 1", "no steps"},
		{"two of one name", "script a\n> S\nscript a\n> S", "a second script"},
		{"a verb that isn't there", "script a\nsleep 1", `"sleep" is nothing`},
		{"a message that isn't there", "script a\n> Z", "unknown message type"},
		{"an open quote", `script a` + "\n" + `> Q "x`, "not closed"},
		{"a word too many", `script a` + "\n" + `> S x`, "too much"},
		{"a word too few", "script a\n> E", "missing"},
		{"a Describe of nothing", "script a\n> D X -", "neither S nor P"},
		{"a reply that isn't there", "script a\n> S\n< ready", "is no message"},
		{"an open parenthesis", "script a\n> S\n< Z(I", "not closed"},
		{"any number without an end", "script a\n> S\n< Z D*", "nothing tells where"},
		{"anything without an end", "script a\n> S\n< Z ...", "nothing tells where"},
		{"an alternative to nothing", "script a\n> S\n<tagged Z", "no line whose place"},
		{"a condition that isn't there", "script a\n> S\n< Z\n<sunny Z", "no condition"},
		{"a version that is none", "script a\n> S\n< Z\n<pgx Z", "no condition"},
		{"a difference without a reason", "script a\ndiffers tagged\n> S", "a reason"},
		{"a fault that isn't told", "script a\nfault tagged\n> S", "what it is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := wire.Parse("test.wire", c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}

func TestScript_Plays(t *testing.T) {
	for _, c := range []struct {
		only    string
		version int
		want    bool
	}{
		{"pg15", 15, true}, {"pg15", 16, false},
		{"pg16+", 15, false}, {"pg16+", 16, true}, {"pg16+", 18, true},
		{"pg15-17", 15, true}, {"pg15-17", 17, true}, {"pg15-17", 18, false},
		{"tagged", 15, true}, {"proxied", 15, true},
	} {
		s := parse(t, "script a\nonly "+c.only+"\n> S")
		if got, err := s.Plays(wire.Where{Leg: wire.Tagged, Version: c.version}); err != nil || got != c.want {
			t.Errorf("only %s on %d: got %v, %v, want %v", c.only, c.version, got, err, c.want)
		}
	}
	s := parse(t, "script a\nuntagged because\n> S")
	for leg, want := range map[wire.Leg]bool{wire.Direct: true, wire.Untagged: true, wire.Tagged: false} {
		if got, err := s.Plays(wire.Where{Leg: leg, Version: 15}); err != nil || got != want {
			t.Errorf("untagged, %v: got %v, %v, want %v", leg, got, err, want)
		}
	}
}

func TestDifference(t *testing.T) {
	trace := func(letters string) (out wire.Trace) {
		for _, l := range letters {
			out = append(out, wire.Event{Session: "a", Letter: string(l)})
		}
		return out
	}
	for _, c := range []struct{ a, b, want string }{
		{"12CZ", "12CZ", ""},
		{"12CZ", "12EZ", "! left: a < C"},
		{"12CZ", "12C", "! right: nothing more"},
		{"12C", "12CZ", "! left: nothing more"},
		{"", "", ""},
	} {
		got := wire.Difference("left", trace(c.a), "right", trace(c.b))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s and %s: got %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// Settings that are reported together come in any order, but not with another
// value, nor on the other side of another message.
func TestDifference_Settings(t *testing.T) {
	trace := func(settings ...string) (out wire.Trace) {
		for _, s := range settings {
			letter, detail, _ := strings.Cut(s, " ")
			out = append(out, wire.Event{Session: "a", Letter: letter, Detail: detail, Text: detail})
		}
		return out
	}
	a := trace("C", "S one=1", "S two=2", "Z I", "S three=3")
	for _, c := range []struct {
		b    wire.Trace
		same bool
	}{
		{trace("C", "S two=2", "S one=1", "Z I", "S three=3"), true},
		{trace("C", "S two=1", "S one=1", "Z I", "S three=3"), false},
		{trace("C", "S two=2", "S three=3", "Z I", "S one=1"), false},
		{trace("S one=1", "C", "S two=2", "Z I", "S three=3"), false},
	} {
		if got := wire.Difference("left", a, "right", c.b); (got == "") != c.same {
			t.Errorf("%v and %v: got %q, want the same: %v", a, c.b, got, c.same)
		}
	}
}

// A script is shrunk to the messages that its failure needs.
func TestShrink(t *testing.T) {
	s := wire.Generate(rand.New(rand.NewPCG(7, 7)), 15)
	fails := func(s *wire.Script) bool {
		text := s.String()
		return strings.Contains(text, "> S\n") && strings.Contains(text, "pipeline 3'")
	}
	if !fails(s) {
		t.Fatal("the generated script has no pipeline 3")
	}
	small := wire.Shrink(s, fails)
	sent := 0
	for _, step := range small.Steps {
		sent += len(step.Messages)
	}
	// The one message that is needed, and the three that end every script.
	if !fails(small) || sent > 4 {
		t.Errorf("got %d messages, want 4:\n%s", sent, small)
	}
}

// What comes is held against what a script says.
func TestPlayer_Play(t *testing.T) {
	r := newRig(t, "lane")
	l := <-r.lanes
	p := r.player(wire.Direct, l)
	for _, c := range []struct{ name, text, want string }{
		{"as it says", "> Q \"SELECT 1\"\n< T D(1) C(SELECT 1) Z(I)", ""},
		{"another letter", "> Q \"SELECT 1\"\n< C", "want C"},
		{"another value", "> Q \"SELECT 1\"\n< T D(2)", "want D(2)"},
		{"another status", "> Q \"BEGIN\"\n< C Z(I)", "want Z(I)"},
		{"another error", "> Q \"SELECT nobody\"\n< E(42P01)", "want E(42P01)"},
		{"any number", "> Q \"SELECT generate_series(1, 3)\"\n< T D* C Z", ""},
		{"none of any number", "> Q \"SELECT 1 WHERE false\"\n< T D* C Z", ""},
		{"what comes before", "> Q \"SELECT 1\"\n< ... D(1) C", ""},
		{"what never comes", "> X\n< ... D(1)\n> Q \"SELECT 1\"", ""},
		{"the end", "> X\n< end", ""},
		{"no end", "> S\n< end", "want end"},
		{"a session that is refused", "on b work_mem=lots\n> S", "refused"},
		{"SQL that is wrong", "admin SELEKT\n> S", "syntax error"},
		{"a cancel of nobody", "> cancel nobody", "no session nobody"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.Play(t.Context(), parse(t, "script a\n"+c.text))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A script that goes wrong leaves no connection open, and one that waits for
// what never comes ends in time.
func TestPlayer_Timeout(t *testing.T) {
	r := newRig(t, "lane")
	l := <-r.lanes
	p := r.player(wire.Untagged, l)
	p.Timeout = 100 * time.Millisecond
	for _, text := range []string{"> H\n< Z", "wait SELECT false\n> S"} {
		if _, err := p.Play(t.Context(), parse(t, "script a\n"+text)); err == nil {
			t.Errorf("%q: got nil, want that it took too long", text)
		}
	}
	p.Timeout = wire.DefaultTimeout
	if err := p.Until(t.Context(), "SELECT count(*) = 0 FROM session"); err != nil {
		t.Error(err)
	}
}
