package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// An Interruption is something that is done in the middle of a script, at one
// of the boundaries between its messages: before each that the client sends, and
// before each that it reads; of rows and of the data of a COPY that follow each
// other only the first two. What comes behind it may be anything that PostgreSQL
// might answer: what the script expects isn't held against it any more, but
// every request must be answered, in frames, or the session ended with a reason.
type Interruption struct {
	At int // the boundary, from 0; one that there isn't interrupts nothing
	Do func(ctx context.Context) error
	// Boundaries is how many the script had, once it is played.
	Boundaries int
	Done       bool // the boundary was reached
}

// answersSoon is how long an interrupted script waits for a message that it may
// have done away with, and answersLate for one that must come.
const (
	answersSoon = 50 * time.Millisecond
	answersLate = 2 * time.Second
)

// endMark is how many Closes in a row say that all before them is answered:
// more than any script sends.
const endMark = 8

// boundary counts one, and interrupts the script if it is the one to do so.
// flush sends what stands before it.
func (r *performance) boundary(flush func()) error {
	i := r.Interrupt
	if i == nil || r.alike > 1 {
		return nil
	}
	at := i.Boundaries
	i.Boundaries++
	if at != i.At {
		return nil
	}
	flush()
	i.Done, r.astray = true, true
	if err := i.Do(r.ctx); err != nil {
		return fmt.Errorf("%w at boundary %d: %w", errInterrupt, at, err)
	}
	return nil
}

// count counts messages that follow others of their like.
func (r *performance) count(row bool) {
	if r.alike++; !row {
		r.alike = 0
	}
}

// listen is next, where a script may be interrupted.
func (r *performance) listen(letter string) (Event, error) {
	if err := r.boundary(func() {}); err != nil {
		return Event{}, err
	}
	if r.astray {
		if letter == letterRest {
			return Event{}, errNothing // that might wait for ever
		}
		if err := r.current.waits(time.Now().Add(answersSoon), r.deadline); err != nil {
			return Event{}, err
		}
	}
	return r.next(letter)
}

// end interrupts a script behind its last message, if that is where, and takes
// leave.
func (r *performance) end() error {
	if err := r.boundary(func() {}); err != nil {
		return err
	}
	if r.astray {
		return r.leaveAstray()
	}
	return r.leave()
}

// What an interrupted script may come to, beside what it expects.
var (
	errNothing   = errors.New("nothing came soon")
	errInterrupt = errors.New("interrupt the script")
	errMalformed = errors.New("a malformed message")
)

// tolerable reports whether what goes wrong may, since the script was
// interrupted.
func (r *performance) tolerable(err error) bool {
	return r.astray && !errors.Is(err, errInterrupt) && !errors.Is(err, errMalformed)
}

// waits waits until something is there to be read, for some time at most.
func (s *session) waits(most, end time.Time) error {
	s.conn.SetReadDeadline(most)
	_, err := s.r.Peek(1)
	s.conn.SetReadDeadline(end)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errNothing
	}
	return nil // the end of the connection is read like a message
}

// waitAstray is for a condition that may never come true any more.
func (r *performance) waitAstray(sql string) error {
	soon := time.After(answersSoon)
	for {
		if ok, err := r.Aside.True(r.ctx, sql); ok || err != nil {
			return err
		}
		select {
		case <-soon:
			return nil
		default:
		}
	}
}

// unblock ends those of the script's own sessions that would wait for ever: in a
// sleep, or for each other. blocked says that one waits for somebody else, who has
// left a lock behind.
const (
	unblock = "SELECT pg_terminate_backend(pid) FROM session WHERE wait_event = 'PgSleep' OR wait_event_type = 'Lock'"
	blocked = `SELECT count(*) > 0 FROM session, unnest(pg_blocking_pids(session.pid)) AS blocker
		WHERE blocker NOT IN (SELECT pid FROM session)`
)

// leaveAstray has each session that is open answer all that it was sent.
func (r *performance) leaveAstray() error {
	for _, s := range r.sessions {
		if s.ended {
			continue
		}
		r.current = s
		if err := r.settle(s); err != nil {
			return fmt.Errorf("session %s, interrupted: %w", s.name, err)
		}
	}
	return nil
}

// settle asks a session, behind all that it was sent, for a mark that can't be
// mistaken, and reads up to it. A session that is in no state to be asked says
// goodbye.
func (r *performance) settle(s *session) error {
	mark := !s.odd && !s.quiet
	switch {
	case mark:
		if err := s.sendLines("f -", "S"); err != nil {
			return err
		}
		for range endMark {
			if err := s.sendLines(`C P "none"`); err != nil {
				return err
			}
		}
		if err := s.sendLines("S"); err != nil {
			return err
		}
	case !s.quiet:
		if err := s.sendLines("X"); err != nil {
			return err
		}
		s.finish()
		_ = s.closeWrite() // fails where the server has closed, which is read below
	}
	evicted := false
	for marks := 0; !s.ended; {
		e, err := r.nextLate(s)
		if err != nil {
			return err
		}
		switch {
		case e.Letter == "3":
			marks++
		case e.Letter == "Z" && mark && marks >= endMark:
			return s.counted()
		case e.Letter == "Z" && mark && evicted:
			if err := s.sendLines("S"); err != nil { // at this request it ends
				return err
			}
			marks = 0
		default:
			marks = 0
		}
		evicted = evicted || e.Letter == "E" && strings.HasSuffix(e.Detail, codeEvicted)
	}
	if mark && !s.told {
		return errors.New("it was closed without a word")
	}
	return nil
}

// codeEvicted is what the proxy tells a session whose lock was claimed by
// another.
const codeEvicted = "LF005"

// nextLate reads a message that must come, unless the session waits for
// something, as a script wanted it to.
func (r *performance) nextLate(s *session) (Event, error) {
	if s.waits(time.Now().Add(answersLate), r.deadline) != nil {
		switch left, err := r.Aside.True(r.ctx, blocked); {
		case err != nil:
			return Event{}, err
		case left:
			return Event{}, errors.New("it waits for a lock that no session of the script's holds")
		}
		if err := r.Aside.Exec(r.ctx, unblock); err != nil {
			return Event{}, err
		}
	}
	if s.unframed {
		return r.next(letterRest)
	}
	return r.next("")
}

// counted holds the ReadyForQuery that came against what asked for them. A
// request in the middle of a COPY, and a Query behind an error that waits for
// its Sync, get none.
func (s *session) counted() error {
	least, most := s.syncs, s.syncs+s.queries
	if s.copied {
		least = 0
	}
	if s.readies < least || s.readies > most {
		return fmt.Errorf("got %d ReadyForQuery, want %d to %d", s.readies, least, most)
	}
	return nil
}

// sendLines sends messages as a script has them.
func (s *session) sendLines(lines ...string) error {
	for _, line := range lines {
		m, err := ParseMessage(line)
		if err != nil {
			return err
		}
		s.note(m)
		s.send(m.bytes, false)
	}
	return nil
}

// note keeps count of what a session is sent.
func (s *session) note(m Message) {
	switch verb, _, _ := strings.Cut(m.Text, " "); verb {
	case "S":
		s.syncs++
	case "Q", "F":
		s.queries++
	case "X":
		s.odd, s.told = true, true // what follows isn't read
	case "raw", "frame", "startup", "ssl", "gss", "p":
		s.unframed = s.unframed || s.odd && s.readies == 0
		s.odd = true
	}
}

// heard keeps count of what a session is sent back.
func (s *session) heard(e Event) error {
	switch e.Letter {
	case "Z":
		s.readies++
	case "G", "W", "H":
		s.copied = s.copied || e.Letter != "H"
	case "E":
		s.told = s.told || strings.HasPrefix(e.Detail, "FATAL") || strings.HasSuffix(e.Detail, codeEvicted)
	}
	if strings.HasPrefix(e.Text, "malformed") {
		return fmt.Errorf("%w: %s", errMalformed, e)
	}
	return nil
}
