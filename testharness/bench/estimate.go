package main

import (
	"fmt"
	"io"
	"time"
)

// An estimate is how long a round of a contender takes on two quiet cores.
type estimate func(o options, c contender) time.Duration

// What things take there.
const (
	// rigTakes is to start PostgreSQL, etcd and, once each, the peers, and to
	// end them.
	rigTakes = 6 * time.Second
	// pgbenchTakes is to start and to end pgbench; a client adds clientTakes to
	// that, twice as much where it encrypts, and one that PgBouncer first opens
	// a connection for.
	pgbenchTakes = 100 * time.Millisecond
	clientTakes  = 4 * time.Millisecond
	// sessionTakes is a session that works a little, and is closed.
	sessionTakes    = 3 * time.Millisecond
	encryptionTakes = 2 * time.Millisecond
	// MB a second.
	copyOutSpeed, copyInSpeed = 500, 250
	// A takeover, from a holder at the same proxy and at another one.
	takeoverHere, takeoverThere = 40 * time.Millisecond, 270 * time.Millisecond
	// Tables of a unit of pgbench's scale, and of a MB to copy.
	scaleTakes, megabyteTakes = 250 * time.Millisecond, 15 * time.Millisecond
)

func (l load) takes(o options, c contender) time.Duration {
	client := clientTakes
	if c.tls {
		client += clientTakes
	}
	if c.route == pgbouncer {
		client += clientTakes
	}
	return pgbenchTakes + time.Duration(l.clients)*client + l.settling() + o.length()
}

func copyTakes(speed float64) estimate {
	return func(o options, _ contender) time.Duration {
		return time.Duration(float64(o.megabytes) / speed * float64(time.Second))
	}
}

func lengthTakes(o options, _ contender) time.Duration { return o.length() }

func takeoverTakes(o options, c contender) time.Duration {
	if c.route == another {
		return time.Duration(o.takeovers) * takeoverThere
	}
	return time.Duration(o.takeovers) * takeoverHere
}

func idleTakes(o options, c contender) time.Duration {
	session := sessionTakes
	if c.tls {
		session += encryptionTakes
	}
	return time.Duration(o.sessions)*session + settle
}

func fillTakes(t tables, o options) time.Duration {
	switch t {
	case pgbenchTables:
		return time.Duration(o.scale) * scaleTakes
	case copiedTables:
		return time.Duration(o.megabytes) * megabyteTakes
	default:
		return 0
	}
}

// takes is how long the workloads take, and how many rounds of contenders that
// is.
func takes(workloads []*workload, o options) (all time.Duration, rounds int) {
	rigs, filled := map[bool]bool{}, map[tables]bool{}
	for _, w := range workloads {
		if !rigs[w.crowded] {
			all += rigTakes
		}
		if !filled[w.tables] {
			all += fillTakes(w.tables, o)
		}
		rigs[w.crowded], filled[w.tables] = true, true
		for _, c := range w.contenders {
			all += time.Duration(w.rounds(o)) * w.takes(o, c)
			rounds += w.rounds(o)
		}
	}
	return all, rounds
}

// A progress tells how far a run is, and how long it still takes.
type progress struct {
	out   io.Writer
	now   func() time.Time
	began time.Time
	all   time.Duration // what was estimated
	done  time.Duration // the part of it that is over
}

// newProgress begins with the estimate.
func newProgress(out io.Writer, workloads []*workload, o options) *progress {
	p := &progress{out: out, now: time.Now}
	p.began = p.now()
	var rounds int
	p.all, rounds = takes(workloads, o)
	fmt.Fprintf(out, "%d rounds of contenders: about %s on a machine of two cores that does nothing else\n", rounds, clock(p.all))
	return p
}

// tell tells what is next.
func (p *progress) tell(format string, args ...any) {
	fmt.Fprintf(p.out, "%s, %s left: %s\n", clock(p.now().Sub(p.began)), clock(p.left()), fmt.Sprintf(format, args...))
}

// did says that something is over that was estimated to take so long.
func (p *progress) did(d time.Duration) { p.done += d }

// left is what remains, at the pace so far; at first that says little.
func (p *progress) left() time.Duration {
	left := p.all - p.done
	if took := p.now().Sub(p.began); p.done > p.all/20 {
		left = time.Duration(float64(left) * float64(took) / float64(p.done))
	}
	return max(left, 0)
}

// ended tells how far the run came that ends now.
func (p *progress) ended() string {
	return fmt.Sprintf("after %s, with %.0f%% of the run played: rows are missing, and the last ones have fewer rounds",
		clock(p.now().Sub(p.began)), 100*float64(p.done)/float64(p.all))
}

// clock is a duration in minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
