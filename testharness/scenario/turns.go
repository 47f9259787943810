package scenario

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Turn is one increment of a count, under a lock of its own: a worker tells of it
// when it has read the counter, and again when its write was answered.
type Turn struct {
	Hold  Hold         `json:"hold"`
	Found int          `json:"found"`           // what the counter said
	Done  bool         `json:"done,omitempty"`  // the write was answered
	Code  fencing.Code `json:"code,omitempty"`  // SQLSTATE, if not with yes
	Error string       `json:"error,omitempty"` // and what it was answered
}

// end takes down what the write was answered.
func (t *Turn) end(err error) {
	t.Done = true
	if err == nil {
		return
	}
	var refused *pgconn.PgError
	t.Error = err.Error()
	if errors.As(err, &refused) {
		t.Code, t.Error = fencing.Code(refused.Code), refused.Message
	}
}

// turns are those of one worker, in their order. Safe for concurrent use.
type turns struct {
	mu  sync.Mutex
	all []Turn
}

// note takes a turn in, or what has become of the last one.
func (t *turns) note(turn Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.all); n > 0 && t.all[n-1].Hold == turn.Hold {
		t.all[n-1] = turn
		return
	}
	t.all = append(t.all, turn)
}

// first returns the first turn of those that are wanted.
func (t *turns) first(wanted func(Turn) bool) (Turn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, turn := range t.all {
		if wanted(turn) {
			return turn, true
		}
	}
	return Turn{}, false
}

// pauseOneAtWork pauses the worker that holds the lock, and has read the counter
// and not written it yet. It isn't the last one again.
func (s *Stage) pauseOneAtWork(workers []*Actor, last *Actor) *Actor {
	found := workers[0]
	s.Await("somebody to work", func() (bool, error) {
		w, turn := atWork(workers, last)
		if w == nil {
			return false, nil
		}
		w.stop()
		late, err := s.written(turn.Hold)
		if late || err != nil { // it was too quick
			w.send(syscall.SIGCONT)
			return false, err
		}
		w.begins(turn)
		w.tell(KindPause, isPaused)
		found = w
		return true, nil
	})
	return found
}

// atWork returns the worker that is at work under the highest token, and its turn.
// Those under lower ones have lost the lock.
func atWork(workers []*Actor, last *Actor) (found *Actor, turn Turn) {
	for _, w := range workers {
		t, ok := w.turns.first(func(t Turn) bool { return !t.Done })
		if ok && w != last && t.Hold.Token > turn.Hold.Token {
			found, turn = w, t
		}
	}
	return found, turn
}

// written says whether an increment under a token is in the database.
func (s *Stage) written(h Hold) (yes bool, err error) {
	err = s.conn.QueryRow(s.ctx, "SELECT EXISTS (SELECT FROM written WHERE token = $1)", int64(h.Token)).Scan(&yes)
	return yes, err
}

// begins tells of a turn up to what was read.
func (a *Actor) begins(turn Turn) {
	a.holds = nil
	a.granted(turn.Hold)
	a.session, a.shows = true, a.holds
	a.tell(KindConnected, a.connects())
	a.tell(KindRead, fmt.Sprintf("reads the counter: %d", turn.Found))
}

// writes is the write of a turn.
func (t *Turn) writes() string { return fmt.Sprintf("writes %d", t.Found+1) }

// tellNext tells of the first who counts after a worker has lost the lock.
func (s *Stage) tellNext(workers []*Actor, lost *Actor) {
	var next *Actor
	var turn Turn
	s.Await("others to count", func() (bool, error) {
		for _, w := range workers {
			t, ok := w.turns.first(func(t Turn) bool { return t.Done && t.Error == "" && t.Hold.Token > lost.hold().Token })
			if ok && (next == nil || t.Hold.Token < turn.Hold.Token) {
				next, turn = w, t
			}
		}
		return next != nil, nil
	})
	if s.err != nil {
		return
	}
	next.begins(turn)
	next.tell(KindCommit, turn.writes())
	next.tell(KindReleased, givesBack)
	next.holds, next.session = nil, false
}

// wakeAtWork has a worker go on that was paused at work, and tells what comes of
// its write. If that had been on its way, and was carried out before the pause,
// it is no stale one.
func (s *Stage) wakeAtWork(a *Actor) {
	if s.err != nil {
		return
	}
	early, err := s.written(a.hold())
	if err != nil {
		s.fail(fmt.Errorf("look for an increment: %w", err))
	}
	a.Wake()
	var turn Turn
	s.Await(a.Name+" to write", func() (done bool, err error) {
		turn, done = a.turns.first(func(t Turn) bool { return t.Done && t.Hold == a.hold() })
		return done, nil
	})
	switch {
	case s.err != nil:
	case early:
		a.tell(KindRead, "hears what became of its write, which was on its way before the pause")
	case turn.Error == "":
		a.tell(KindCommit, turn.writes())
	default:
		a.tellRefusal(Reply{Code: turn.Code, Error: turn.Error}, turn.writes())
	}
	if turn.Code != "" && !early {
		a.told = append(a.told, turn.Code)
	}
	a.holds, a.session = nil, false
}
