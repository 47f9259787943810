package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// A Backstage does what no worker does.
type Backstage interface {
	// Protect puts a guard on a table by a key template, where there is
	// schema fence.
	Protect(ctx context.Context, table, template string) error
	// ReplaceEtcd has all gates lead to another etcd, which is empty.
	ReplaceEtcd(ctx context.Context) (*clientv3.Client, error)
	// AdoptEtcd has the database take tokens from that one. It ends all
	// sessions of the database.
	AdoptEtcd(ctx context.Context) error
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

	Backstage Backstage // for the stories that need it
	Servers   Servers   // for those with a standby

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
	defer func() { s.conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := s.conn.Exec(ctx, story.Tables+"; "+expiringTable); err != nil {
		return v, fmt.Errorf("make the tables: %w", err)
	}
	if err := s.furnish(story); err != nil {
		return v, err
	}
	story.Play(s)
	s.dismissAll()
	// What a worker or a proxy has left behind may still be carried out.
	s.See("the last statements to end", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle')`)
	s.tellAll(KindRows, story.Result)
	s.tellAll(KindWrong, story.Wrong)
	return Judge(s.Arm, s.History.Events(0)), s.err
}

// furnish gives the tables what only this arm has.
func (s *Stage) furnish(story Story) error {
	for _, table := range story.Tokens {
		if s.Arm != ArmHomemade {
			break
		}
		if _, err := s.conn.Exec(s.ctx, homemadeTable+fmt.Sprintf(homemadeTrigger, table)); err != nil {
			return fmt.Errorf("make the trigger of %s: %w", table, err)
		}
	}
	for table, template := range story.Guard {
		if s.Arm != ArmFenced {
			break
		}
		if err := s.Backstage.Protect(s.ctx, table, template); err != nil {
			return fmt.Errorf("guard %s: %w", table, err)
		}
	}
	return nil
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

// Beside is Worker, at the gate of another one.
func (s *Stage) Beside(other *Actor, name string) *Actor {
	a := s.Worker(name)
	a.gate = other.gate
	return a
}

// Outsider is Worker, but for a program that connects to PostgreSQL itself.
func (s *Stage) Outsider(name string) *Actor {
	a := s.Worker(name)
	a.gate = &Gate{DSN: s.Admin}
	return a
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
		gone, lane := s.gone, LaneEtcd
		if s.Arm == ArmExpiring {
			gone, lane = s.overdue, LanePostgres
		}
		s.Await("the lock of "+a.Name+" to run out", func() (bool, error) { return gone(h) })
		s.record(Event{Actor: lane, Kind: KindExpired, Key: h.Key, Token: h.Token,
			Text: fmt.Sprintf("%s has not renewed its lease for %v: the lock is taken from it", a.Name, s.TTL)})
	}
}

// overdue is gone for an expiring lock.
func (s *Stage) overdue(h Hold) (gone bool, err error) {
	err = s.conn.QueryRow(s.ctx, expiringGone, h.Key, int64(h.Token)).Scan(&gone)
	return gone, err
}

// reconnect replaces the stage's own session.
func (s *Stage) reconnect() {
	conn, err := pgx.Connect(s.ctx, s.Admin)
	if err != nil {
		s.fail(fmt.Errorf("connect again: %w", err))
		return
	}
	s.conn.Close(s.ctx)
	s.conn = conn
}

// exec runs a statement of the story itself.
func (s *Stage) exec(sql string, args ...any) {
	if s.err != nil {
		return
	}
	if _, err := s.conn.Exec(s.ctx, sql, args...); err != nil {
		s.fail(fmt.Errorf("run a statement of the story: %w", err))
	}
}

// See waits until a query of one value, straight to PostgreSQL, says true.
func (s *Stage) See(what, query string, args ...any) {
	s.Await(what, func() (ok bool, err error) {
		err = s.conn.QueryRow(s.ctx, query, args...).Scan(&ok)
		return ok, err
	})
}

// awaitStop waits until a process has stopped that was told to.
func (s *Stage) awaitStop(name string, pid int) {
	s.Await(name+" to stop", func() (bool, error) { return child.Stopped(pid) })
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
