package wire_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

var legs = []wire.Leg{wire.Direct, wire.Untagged, wire.Tagged}

// scripts reads those of a folder.
func scripts(t *testing.T, dir string) []*wire.Script {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.wire"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var all []*wire.Script
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found, err := wire.Parse(filepath.Base(file), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestScripts plays every script straight and through the proxy, untagged and
// tagged: what comes is what the script says and the same to the last byte.
func TestScripts(t *testing.T) {
	newRig(t, "lane1", "lane2", "lane3", "lane4").playAll(t, scripts(t, "testdata"), false)
}

// playAll plays scripts on all legs, several at a time.
func (r *rig) playAll(t *testing.T, all []*wire.Script, overTLS bool) {
	report := newProgress(t.Name(), all)
	for _, s := range all {
		t.Run(s.File+"/"+s.Name, func(t *testing.T) {
			defer func() { report.played(s, t.Failed()) }()
			if s.Alone == "" {
				t.Parallel()
			}
			l := <-r.lanes
			defer func() { r.lanes <- l }()
			var direct wire.Trace
			for _, leg := range legs {
				p := r.player(leg, l)
				p.TLS = overTLS
				if s.Unix != "" {
					r.overSocket(p)
				}
				if says(t, s.Plays, p.Where) {
					play(t, s, p, l, &direct)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// faultTimeout is how long a script may take that is known to fail.
const faultTimeout = 2 * time.Second

// play plays a script on one leg. The trace of the direct one, which comes
// first unless the script isn't for it, is kept in direct and held against the others.
func play(t *testing.T, s *wire.Script, p *wire.Player, l *lane, direct *wire.Trace) {
	t.Helper()
	ctx := t.Context()
	if err := l.reset(ctx, p, s.Setup); err != nil {
		t.Fatal(err)
	}
	faulty := says(t, s.Faulty, p.Where)
	if faulty {
		p.Timeout = faultTimeout
	}
	got, err := p.Play(ctx, s)
	if s.Alone != "" {
		if err := l.resetServer(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if *direct == nil { // the first leg that the script is for
		*direct = got
	}
	difference := wire.Difference("direct", *direct, p.Where.Leg.String(), got)
	differs := says(t, s.Differs, p.Where)
	switch {
	case faulty && err == nil && difference == "":
		t.Errorf("%v: all is well, against what the script says: fault %s %s", p.Where.Leg, s.FaultIn, s.Fault)
	case faulty:
		if err := l.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM session"); err != nil {
			t.Fatal(err)
		}
	case err != nil:
		t.Errorf("%v: %v\n%s", p.Where.Leg, err, tail(got))
	case differs && difference == "":
		t.Errorf("%v: the trace is the same, against what the script says: differs %s %s", p.Where.Leg, s.DiffersIn, s.Reason)
	case !differs && difference != "":
		t.Errorf("%v: the trace is another one:\n%s", p.Where.Leg, difference)
	}
}

// says asks a script about a place.
func says(t *testing.T, ask func(wire.Where) (bool, error), w wire.Where) bool {
	t.Helper()
	answer, err := ask(w)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// tail is the end of a trace.
func tail(trace wire.Trace) string {
	const most = 15
	lines := trace.Lines()
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
