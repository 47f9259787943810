package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
)

// A Gate is where actors connect.
type Gate struct {
	Name string // of the proxy; "" if it is PostgreSQL itself
	DSN  string
}

// A Stage is where one run of a story is played. The first step that can't be
// taken ends the play: the steps after it do nothing, so that a story reads
// as a list of what happens.
type Stage struct {
	Arm     Arm
	History *History
	Etcd    *clientv3.Client
	Prefix  string        // of locks in etcd
	TTL     time.Duration // of the actors' leases
	Command []string      // starts an actor's process; flags are added
	Admin   string        // DSN for tables, results and expiring locks, straight to PostgreSQL
	Gates   []*Gate       // the actors are dealt out among them

	ctx   context.Context // of the play, which is all that a Stage lives for
	err   error
	conn  *pgx.Conn // at Admin
	hired []*Actor
}

// Run plays a story once and judges it.
func (s *Stage) Run(ctx context.Context, story Story) (v Verdict, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("play %s (%s): %w", story.Name, s.Arm, err)
		}
	}()
	defer s.dismissAll()
	s.ctx = ctx
	if s.conn, err = pgx.Connect(ctx, s.Admin); err != nil {
		return v, fmt.Errorf("connect for the tables: %w", err)
	}
	defer s.conn.Close(context.WithoutCancel(ctx))
	if _, err := s.conn.Exec(ctx, story.Tables+"; "+expiringTable); err != nil {
		return v, fmt.Errorf("make the tables: %w", err)
	}
	story.Play(s)
	s.dismissAll()
	s.tellAll(KindRows, story.Result)
	s.tellAll(KindWrong, story.Wrong)
	return Judge(s.Arm, s.History.Events(0)), s.err
}

// tellAll records a text for each row that a query of one column returns.
func (s *Stage) tellAll(kind Kind, query string) {
	if s.err != nil || query == "" {
		return
	}
	rows, err := s.conn.Query(s.ctx, query)
	if err != nil {
		s.fail(fmt.Errorf("read the outcome: %w", err))
		return
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.fail(fmt.Errorf("read the outcome: %w", err))
		return
	}
	for _, text := range texts {
		s.record(Event{Actor: LanePostgres, Kind: kind, Text: text})
	}
}

// fail ends the play.
func (s *Stage) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *Stage) record(e Event) {
	if s.err == nil {
		s.History.Record(e)
	}
}

// Note has the story explain itself.
func (s *Stage) Note(format string, args ...any) {
	s.record(Event{Kind: KindNote, Text: fmt.Sprintf(format, args...)})
}

// Worker starts an actor's process. The workers get the gates in turn.
func (s *Stage) Worker(name string) *Actor {
	gate := s.Gates[len(s.hired)%len(s.Gates)]
	if s.err == nil {
		a, err := s.hire(name, gate)
		if err == nil {
			s.hired = append(s.hired, a)
			return a
		}
		s.fail(err)
	}
	return &Actor{Name: name, stage: s, gate: gate}
}

// Workers is Worker for several.
func (s *Stage) Workers(names ...string) []*Actor {
	workers := make([]*Actor, len(names))
	for i, name := range names {
		workers[i] = s.Worker(name)
	}
	return workers
}

func (s *Stage) dismissAll() {
	for _, a := range s.hired {
		a.sendHome()
	}
	for _, a := range s.hired {
		a.seeOff()
	}
	s.hired = nil
}

// AwaitExpiry waits until the locks that the actor held are taken away from
// it, because it hasn't renewed them.
func (s *Stage) AwaitExpiry(a *Actor) {
	for _, h := range a.holds {
		gone, lane := s.goneFromEtcd, LaneEtcd
		if s.Arm == ArmExpiring {
			gone, lane = s.overdue, LanePostgres
		}
		s.Await("the lock of "+a.Name+" to run out", func() (bool, error) { return gone(h) })
		s.record(Event{Actor: lane, Kind: KindExpired, Key: h.Key, Token: h.Token,
			Text: fmt.Sprintf("%s has not renewed its lease for %v: the lock is taken from it", a.Name, s.TTL)})
	}
}

// goneFromEtcd says whether nobody stands in line under the hold's key with
// its number any more: of those in line, the holder's key is the one with the
// lowest create revision.
func (s *Stage) goneFromEtcd(h Hold) (bool, error) {
	got, err := s.Etcd.Get(s.ctx, leases.LockPrefix(s.Prefix, h.Key)+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return false, fmt.Errorf("look at the lock %s: %w", h.Key, err)
	}
	return len(got.Kvs) == 0 || got.Kvs[0].CreateRevision > int64(h.Token), nil
}

// overdue is goneFromEtcd for an expiring lock.
func (s *Stage) overdue(h Hold) (gone bool, err error) {
	err = s.conn.QueryRow(s.ctx, expiringGone, h.Key, int64(h.Token)).Scan(&gone)
	return gone, err
}

// awaitTimeout is longer than anything takes that a story waits for.
const awaitTimeout = 20 * time.Second

// Await waits until something that the story can see has come about.
func (s *Stage) Await(what string, holds func() (bool, error)) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(awaitTimeout)
	defer late.Stop()
	for s.err == nil {
		ok, err := holds()
		if err != nil {
			s.fail(fmt.Errorf("wait for %s: %w", what, err))
		}
		if ok || err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			s.fail(fmt.Errorf("wait for %s: %w", what, errNever))
		case <-s.ctx.Done():
			s.fail(fmt.Errorf("wait for %s: %w", what, context.Cause(s.ctx)))
		}
	}
}

// errNever is what happens to something that was waited for.
var errNever = errors.New("it never came")

// HandOver pauses the actor a right after it has seen that the lock is its
// own, waits until it has lost it, and has b take over.
func (s *Stage) HandOver(a, b *Actor, key string) {
	b.LineUp(key)
	a.Held()
	a.Pause()
	s.AwaitExpiry(a)
	b.Locked(key)
	b.Connect()
}
