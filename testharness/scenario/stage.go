package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
)

// A Story is one way in which a lock holder goes wrong.
type Story struct {
	Name  string // as on the command line
	Title string // one line
	Case  string // what happens, for a newcomer

	// Tables makes the story's tables; Result is a query of one column that
	// describes each row of the outcome; Right is the outcome that it
	// should have.
	Tables, Result, Right string

	Play func(context.Context, *Stage) error
}

// Stories returns all there are, in the order in which to tell them.
func Stories() []Story { return []Story{pausedHolder(), pausedInTransaction()} }

// A Stage is where one run of a story is played.
type Stage struct {
	History *History
	Etcd    *clientv3.Client
	Prefix  string        // of locks in etcd
	TTL     time.Duration // of the actors' leases
	Command []string      // starts an actor's process; flags are added
	Admin   string        // DSN for tables and results, straight to PostgreSQL
	Gates   []string      // DSNs of the actors, who are dealt out among them

	hired []*Actor
}

// Run plays a story once and judges it.
func (s *Stage) Run(ctx context.Context, story Story) (Verdict, error) {
	defer s.dismissAll()
	conn, err := pgx.Connect(ctx, s.Admin)
	if err != nil {
		return Verdict{}, fmt.Errorf("connect for the tables of %s: %w", story.Name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, story.Tables); err != nil {
		return Verdict{}, fmt.Errorf("make the tables of %s: %w", story.Name, err)
	}
	if err := story.Play(ctx, s); err != nil {
		return Verdict{}, fmt.Errorf("play %s: %w", story.Name, err)
	}
	s.dismissAll()
	rows, err := conn.Query(ctx, story.Result)
	if err != nil {
		return Verdict{}, fmt.Errorf("read the outcome of %s: %w", story.Name, err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return Verdict{}, fmt.Errorf("read the outcome of %s: %w", story.Name, err)
	}
	for _, text := range texts {
		s.History.Record(Event{Kind: KindRows, Text: text})
	}
	return Judge(s.History.Events()), nil
}

// Hire starts an actor's process.
func (s *Stage) Hire(name string) (*Actor, error) {
	a, err := s.hire(name, s.Gates[len(s.hired)%len(s.Gates)])
	if err == nil {
		s.hired = append(s.hired, a)
	}
	return a, err
}

func (s *Stage) dismissAll() {
	for _, a := range s.hired {
		a.dismiss()
	}
	s.hired = nil
}

// AwaitExpiry waits until etcd has removed the lock that the actor held,
// because its lease wasn't renewed.
func (s *Stage) AwaitExpiry(ctx context.Context, a *Actor) error {
	ctx, cancel := context.WithTimeout(ctx, s.TTL+replyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// Of the keys in line, the holder's is the one with the lowest
		// create revision; the actor's is known by it.
		got, err := s.Etcd.Get(ctx, leases.LockPrefix(s.Prefix, a.key)+"/", clientv3.WithFirstCreate()...)
		if err != nil {
			return fmt.Errorf("watch the lock of %s: %w", a.Name, err)
		}
		if len(got.Kvs) == 0 || got.Kvs[0].CreateRevision > int64(a.token) {
			s.History.Record(Event{Actor: "etcd", Kind: KindExpired, Key: a.key, Token: a.token,
				Text: fmt.Sprintf("%s has not renewed its lease for %v: the lock is taken from it", a.Name, s.TTL)})
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the lease of %s to run out: %w", a.Name, context.Cause(ctx))
		}
	}
}

func (s *Stage) note(text string) { s.History.Record(Event{Kind: KindNote, Text: text}) }
