package claims_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const (
	// workers is how many acquire and claim at a time.
	workers = 16
	// rounds is how often what is compared takes turns.
	rounds = 9
	// perRound is how many locks a round acquires, claims and releases.
	perRound = 1000
)

// BenchmarkClaims compares claims with what they are made of and with what they
// follow. PostgreSQL and etcd write through to the disk, and what is compared
// takes turns on the same servers; medians of the rounds are reported.
func BenchmarkClaims(b *testing.B) {
	s := newStack(b)
	const second = database + "_of_three"
	if err := errors.Join(s.CreateDatabase(b.Context(), second), s.Install(b.Context(), second)); err != nil {
		b.Fatal(err)
	}
	b.Run("etcd=1", func(b *testing.B) { compareRates(b, s.Client, claimer(b, s, database, s.Client)) })
	b.Run("etcd=3", func(b *testing.B) {
		three := startCluster(b)
		compareRates(b, three, claimer(b, s, second, three))
	})
	b.Run("alone", func(b *testing.B) { compareLatencies(b, s) })
}

// compareRates acquires locks with etcd's own Mutex, all over one lease, claims
// them, and releases them.
func compareRates(b *testing.B, etcd *clientv3.Client, c *fencing.Claimer) {
	session, err := concurrency.NewSession(etcd)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var locks, claims, ratios []float64
		for range rounds {
			held := make([]*concurrency.Mutex, perRound)
			l := perSecond(b, func(i int) error {
				held[i] = concurrency.NewMutex(session, leases.DefaultPrefix+"order:"+strconv.Itoa(i))
				return held[i].Lock(context.Background())
			})
			c := perSecond(b, func(i int) error {
				return c.Claim(context.Background(), c.Store.Database(), pair(i, held[i]))
			})
			perSecond(b, func(i int) error { return held[i].Unlock(context.Background()) })
			locks, claims, ratios = append(locks, l), append(claims, c), append(ratios, c/l)
		}
		b.ReportMetric(median(locks), "locks/s")
		b.ReportMetric(median(claims), "claims/s")
		b.ReportMetric(median(ratios), "claims/lock")
	}
}

// pair is what the holder of a lock that nobody else wanted claims: the
// revision is its key's own.
func pair(i int, held *concurrency.Mutex) fencing.Pair {
	return fencing.Pair{Key: "order:" + strconv.Itoa(i), Token: fencing.Token(held.Header().Revision)}
}

// compareLatencies measures single claims beside what they can't do without,
// done by hand: a linearizable read and a commit.
func compareLatencies(b *testing.B, s *stack.Stack) {
	ctx := b.Context()
	c := claimer(b, s, database, s.Client)
	conn, err := pgx.Connect(ctx, s.DSN(stack.RoleFence, database))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const table = "CREATE SCHEMA by_hand CREATE TABLE lock (resource_key text PRIMARY KEY, token bigint NOT NULL)"
	if _, err := conn.Exec(ctx, table); err != nil {
		b.Fatal(err)
	}
	session, err := concurrency.NewSession(s.Client)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var hand, claim []float64
		for i := range perRound {
			mutex := concurrency.NewMutex(session, leases.DefaultPrefix+"order:"+strconv.Itoa(i))
			if err := mutex.Lock(ctx); err != nil {
				b.Fatal(err)
			}
			p := pair(i, mutex)
			byHand := func() error {
				_, asked := s.Client.Get(ctx, leases.LockPrefix(leases.DefaultPrefix, p.Key)+"/", clientv3.WithPrefix())
				const raise = "INSERT INTO by_hand.lock VALUES ($1, $2) ON CONFLICT (resource_key) DO UPDATE SET token = excluded.token"
				_, raised := conn.Exec(ctx, raise, p.Key, int64(p.Token))
				return errors.Join(asked, raised)
			}
			byClaim := func() error { return c.Claim(ctx, database, p) }
			if i%2 == 0 {
				hand = append(hand, micros(b, byHand))
				claim = append(claim, micros(b, byClaim))
			} else {
				claim = append(claim, micros(b, byClaim))
				hand = append(hand, micros(b, byHand))
			}
			if err := mutex.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(median(hand), "µs-by-hand")
		b.ReportMetric(median(claim), "µs-claim")
		b.ReportMetric(median(claim)/median(hand), "claim/by-hand")
	}
}

// perSecond does work perRound times, shared among the workers, and returns how
// often a second that was.
func perSecond(b *testing.B, work func(i int) error) float64 {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(workers)
	began := time.Now()
	for i := range perRound {
		group.Go(func() error { return work(i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return perRound / time.Since(began).Seconds()
}

func micros(b *testing.B, work func() error) float64 {
	b.Helper()
	began := time.Now()
	if err := work(); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(began).Nanoseconds()) / 1e3
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
