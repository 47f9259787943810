package wire_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/environ"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// At how many of the boundaries between the messages of all scripts a token is
// raised: at one of so many, from an offset on, and in how many random scripts
// too. make steps raises one at each.
const (
	envStride         = "FENCE_RAISED_STRIDE"
	envOffset         = "FENCE_RAISED_OFFSET"
	envRandom         = "FENCE_RAISED_RANDOM"
	envRaisedSeed     = "FENCE_RAISED_SEED"
	envRaisedPart     = "FENCE_RAISED_RIGS"
	defaultStride     = 71
	defaultRandom     = 0
	defaultRaisedSeed = 1
	defaultRigs       = 2
	raisedTimeout     = 30 * time.Second
	raisedSetup       = "CREATE TABLE public.marker (token bigint)"
	raisedMarkerSQL   = "INSERT INTO public.marker VALUES ($1) RETURNING pg_current_xact_id()::text"
	raisedOriginSQL   = "SELECT pg_replication_origin_create('%[1]s'); SELECT pg_replication_origin_session_setup('%[1]s')"
	raisedFromSQL     = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_current_wal_insert_lsn()::text"
	raisedCommitsSQL  = `SELECT coalesce(string_agg(x::text, ' '), '') FROM
		generate_series(($1::text)::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) AS x,
		pg_xact_commit_timestamp_origin(x::text::xid) AS c
		WHERE c.timestamp IS NOT NULL AND c.roident = 0 AND x::text <> $2
			AND (c.timestamp > $3 OR NOT pg_visible_in_snapshot(x::text::xid8, ($4::text)::pg_snapshot))`
	raisedSnapshotSQL = "SELECT pg_current_snapshot()::text"
)

// randomStride is at one of how many of the boundaries of random scripts a token
// is raised, compared with the others: they are long, and much alike.
const randomStride = 29

// enough is after how many failures no more scripts are begun.
const enough = 10

// A raiser plays scripts that lose their lock in the middle.
type raiser struct {
	t     *testing.T
	rig   *rig
	lane  *lane
	tally *raises
	// next are the next holder's sessions: through the scripts' proxy, and
	// through another one.
	next   [2]*pgx.Conn
	signed atomic.Int64
}

// raises counts what was tried.
type raises struct {
	scripts, boundaries, raised, failed atomic.Int64
	slowest                             atomic.Int64 // claim, in nanoseconds
}

// A token is raised at the boundaries between the messages of every script:
// from the answer to that claim on no transaction of the script's sessions
// commits, whatever it has written, and every request of theirs is answered.
func TestScripts_Raised(t *testing.T) {
	stride, offset := environ.Int(t, envStride, defaultStride), environ.Int(t, envOffset, 0)
	var raisers []*raiser // the scripts come first, and are counted apart
	for range environ.Int(t, envRaisedPart, defaultRigs) {
		raisers = append(raisers, newRaiser(t))
	}
	raiseIn(t, "scripts", raisers, scripts(t, "testdata"), offset, stride)
	n, seed := environ.Int(t, envRandom, defaultRandom), environ.Int(t, envRaisedSeed, defaultRaisedSeed)
	var random []*wire.Script
	for i := range n {
		s := wire.Generate(rand.New(rand.NewPCG(uint64(seed), uint64(i))), raisers[0].rig.version)
		s.Setup = []string{wire.GeneratedSetup}
		random = append(random, s)
	}
	if n > 0 {
		raiseIn(t, fmt.Sprintf("random scripts of seed %d", seed), raisers, random, offset, stride*randomStride)
	}
}

// raiseIn shares scripts out among raisers, and says what was tried and found.
func raiseIn(t *testing.T, what string, raisers []*raiser, all []*wire.Script, offset, stride int) {
	t.Helper()
	tally := &raises{}
	for _, r := range raisers {
		r.tally = tally
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for _, r := range raisers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && tally.failed.Load() < enough; i = int(next.Add(1)) - 1 {
				r.script(all[i], offset+i, stride)
			}
		})
	}
	done.Wait()
	if tally.raised.Load() == 0 {
		t.Errorf("a token was raised at none of the %d boundaries of %d %s: nothing was tried", tally.boundaries.Load(), tally.scripts.Load(), what)
	}
	t.Logf("total: %d %s with %d boundaries: a token raised %d times there, through either proxy; the slowest claim took %v; %d violations",
		tally.scripts.Load(), what, tally.boundaries.Load(), tally.raised.Load(), time.Duration(tally.slowest.Load()).Round(time.Millisecond), tally.failed.Load())
}

func newRaiser(t *testing.T) *raiser {
	t.Helper()
	pg := postgres.New(t, postgres.Options{Config: append(settings(), "track_commit_timestamp = on", "autovacuum = off", "max_replication_slots = 1000")})
	r := &raiser{t: t, rig: newRigOn(t, pg, nil, "raised")}
	r.lane = <-r.rig.lanes
	r.rig.ready = r.sign
	r.rig.proxy = r.rig.startProxy(t, nil)
	for via, proxy := range []string{r.rig.proxy, r.rig.startProxy(t, nil)} {
		r.next[via] = dial.Connect(t, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", postgres.Superuser, proxy, r.lane.name))
	}
	dial.Exec(t, r.lane.conn, raisedSetup)
	dial.Exec(t, r.lane.conn, walSetup)
	if err := r.sign(t.Context(), r.lane.conn); err != nil {
		t.Fatal(err)
	}
	return r
}

// sign gives all that a session commits an origin, so that it can be told from
// what the scripts' sessions do: what is done aside, and the claims, of which one
// that is too late may have a transaction that changes nothing.
func (r *raiser) sign(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, fmt.Sprintf(raisedOriginSQL, fmt.Sprintf("harness%d", r.signed.Add(1)))).ReadAll()
	return err
}

// script plays a script once to count its boundaries, and then once for each of
// those that are its turn, through either proxy.
func (r *raiser) script(s *wire.Script, first, stride int) {
	p := r.rig.player(wire.Tagged, r.lane)
	if !says(r.t, s.Plays, p.Where) || says(r.t, s.Faulty, p.Where) {
		return
	}
	count := &wire.Interruption{At: -1}
	if err := r.play(s, count); err != nil {
		r.tally.failed.Add(1)
		r.t.Errorf("%s/%s, not interrupted: %v", s.File, s.Name, err)
		return
	}
	r.tally.scripts.Add(1)
	r.tally.boundaries.Add(int64(count.Boundaries))
	for at := range count.Boundaries {
		for via := range r.next {
			if (first*7+at*2+via)%stride != 0 {
				continue
			}
			if err := r.raise(s, at, r.next[via]); err != nil {
				r.tally.failed.Add(1)
				r.t.Errorf("%s/%s: a token raised at boundary %d of %d, through proxy %d: %v", s.File, s.Name, at, count.Boundaries, via, err)
			}
			r.tally.raised.Add(1)
		}
	}
}

// play plays the script with a token of its own.
func (r *raiser) play(s *wire.Script, i *wire.Interruption) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), raisedTimeout)
	defer cancel()
	r.rig.holder.token.Add(1)
	p := r.rig.player(wire.Tagged, r.lane)
	p.Interrupt = i
	if err := r.lane.reset(ctx, p, s.Setup); err != nil {
		return err
	}
	trace, err := p.Play(ctx, s)
	if s.Alone != "" {
		if err := r.lane.resetServer(ctx, p); err != nil {
			return err
		}
	}
	if err != nil {
		// A session that hangs holds locks.
		return fmt.Errorf("%w\n%s (%v)", err, tail(trace), r.lane.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM session"))
	}
	return p.Until(ctx, "SELECT count(*) = 0 FROM session")
}

// raise plays the script, claims the next token at a boundary, and looks for
// what was committed behind that claim. PostgreSQL's own log of commits says so,
// of everything that is written in a transaction; each commit that is not a
// script's has an origin, or is known.
func (r *raiser) raise(s *wire.Script, at int, next *pgx.Conn) error {
	var from, start string
	var end succession
	i := &wire.Interruption{At: at, Do: func(ctx context.Context) (err error) {
		if err = r.lane.conn.QueryRow(ctx, raisedFromSQL).Scan(&from, &start); err == nil {
			end, err = r.succeed(ctx, next)
		}
		return err
	}}
	if err := r.play(s, i); err != nil {
		return err
	}
	if !i.Done {
		return fmt.Errorf("the boundary wasn't reached, there were %d", i.Boundaries)
	}
	var stale string
	if err := r.lane.conn.QueryRow(r.t.Context(), raisedCommitsSQL, from, end.marker, end.answered, end.snapshot).Scan(&stale); err != nil {
		return err
	}
	wrote, err := r.wrote(start, strings.Fields(stale), s)
	if err != nil || len(wrote) == 0 {
		return err
	}
	return fmt.Errorf("committed behind the claim:\n%s", strings.Join(wrote, "\n"))
}

// A succession is a claim that was answered: when that was, what PostgreSQL says
// was committed right behind it, and the transaction of the holder's own write.
type succession struct {
	answered         time.Time
	snapshot, marker string
}

// succeed claims the next token and writes under it.
func (r *raiser) succeed(ctx context.Context, next *pgx.Conn) (s succession, err error) {
	began := time.Now()
	token := r.rig.holder.token.Add(1)
	if _, err = next.Exec(ctx, fmt.Sprintf("SET %s = '%s'; SET %s = %d", fencing.SettingKey, key, fencing.SettingToken, token)); err != nil {
		return s, fmt.Errorf("claim: %w", err)
	}
	s.answered = time.Now()
	if took := int64(s.answered.Sub(began)); took > r.tally.slowest.Load() {
		r.tally.slowest.Store(took)
	}
	if err = r.lane.conn.QueryRow(ctx, raisedSnapshotSQL).Scan(&s.snapshot); err != nil {
		return s, err
	}
	if err = next.QueryRow(ctx, raisedMarkerSQL, token).Scan(&s.marker); err != nil {
		return s, fmt.Errorf("write under the new token: %w", err)
	}
	_, err = next.Exec(ctx, fmt.Sprintf("SET %s = ''; SET %s = ''", fencing.SettingKey, fencing.SettingToken))
	return s, err
}
