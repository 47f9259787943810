package proxy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/testharness/environ"
)

// How many random sessions are played, and what they are made from, unless the
// environment says otherwise: make attack does.
const (
	envSessions     = "FENCEPROXY_ATTACK_SESSIONS"
	envSeed         = "FENCEPROXY_ATTACK_SEED"
	defaultSessions = 60
	defaultSeed     = 1
)

// steps is how many batches of messages a random session sends, and maxDelay how
// long after one of them is sent its lock may be claimed.
const (
	steps    = 14
	maxDelay = 4 * time.Millisecond
)

// Random sessions in any order of messages, of which each loses its lock at some
// moment: nothing that was written under its token is there afterwards that
// wasn't when the claim was answered, and every session gets all its answers.
func TestSession_StaleAtRandom(t *testing.T) {
	sessions, seed := environ.Int(t, envSessions, defaultSessions), environ.Int(t, envSeed, defaultSeed)
	s := newStack(t, 2)
	s.exec(randomSchema)
	s.holders.hold("OTHER", 5)
	closed := 0
	for i := range sessions {
		s.exec("TRUNCATE w, g, d, later")
		r := &randomSession{stack: s, g: newGenerator(uint64(seed + i)), key: fmt.Sprintf("random%d", seed+i)}
		why := r.play()
		if why != "" {
			t.Errorf("%s; to do it again: make attack N=1 SEED=%d\nthe claim of 2 by proxy %d, %v after the beginning of batch %d\n%s",
				why, seed+i, r.via, r.delay, r.at, strings.Join(r.log, "\n"))
		}
		if r.ended {
			closed++
		}
	}
	t.Logf("%d random sessions from seed %d, of which %d were ended by a server or a claim", sessions, seed, closed)
}

// answersWithin is when an answer that hasn't come is missing.
const answersWithin = 20 * time.Second

// A randomSession plays what a generator makes.
type randomSession struct {
	*stack
	g       *generator
	key     string
	at, via int
	delay   time.Duration
	log     []string
	ended   bool // before all was sent
}

// A claim is what a claim came to: the stale rows that there were when it had
// been answered.
type claim struct {
	rows string
	err  error
}

// play plays the session and says what is wrong.
func (r *randomSession) play() string {
	r.holders.hold(r.key, 1)
	f := r.open()
	defer f.conn.Close()
	r.at, r.via = r.g.n(steps/2), r.g.n(len(r.addrs))
	if r.g.one(2) {
		r.delay = time.Duration(1 + r.g.n(int(maxDelay)))
	}
	claimed := make(chan claim, 1)
	for step := 0; step < steps && !(r.ended && step > r.at); step++ {
		messages := r.g.batch(r.key)
		if step == r.at {
			go func() { claimed <- r.claim() }()
			if r.delay == 0 { // all that follows is stale
				claimed <- <-claimed
			}
		}
		if r.ended {
			continue
		}
		f.conn.SetDeadline(time.Now().Add(answersWithin))
		got, err := f.play(messages)
		r.log = append(r.log, fmt.Sprintf("%d: %s\n   => %s", step, tellAll(messages), got))
		if err != nil {
			r.ended = true
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return "an answer is missing: " + err.Error()
			}
		}
	}
	c := <-claimed
	_, _ = f.play([]pgproto3.FrontendMessage{query("COMMIT")})
	f.conn.Close()
	if c.err != nil {
		return "the claim failed: " + c.err.Error()
	}
	if rows, err := r.stale(); rows != c.rows || err != nil {
		return fmt.Sprintf("stale rows: %q when the claim was answered, then %q (%v)", c.rows, rows, err)
	}
	return ""
}

// open opens the session in one of the ways to tag one, or without a tag.
func (r *randomSession) open() *frontend {
	params := map[string]string{}
	if r.g.one(3) {
		params["fence.key"], params["fence.token"] = r.key, "1"
	}
	f := r.frontendWith(r.addrs[0], params)
	if r.g.one(2) {
		f.send(query(fmt.Sprintf("SET fence.key = '%s'; SET fence.token = 1", r.key)))
		f.ready(1)
	}
	return f
}

// claim gives the lock to another holder at some moment, who claims it.
func (r *randomSession) claim() (c claim) {
	<-time.After(r.delay) // whatever the session is at then
	r.holders.hold(r.key, 2)
	conn, err := pgx.Connect(r.t.Context(), r.dsn(r.via))
	if err != nil {
		return claim{err: err}
	}
	defer conn.Close(r.t.Context())
	if _, err := conn.Exec(r.t.Context(), fmt.Sprintf("SET fence.key = '%s'; SET fence.token = 2", r.key)); err != nil {
		return claim{err: err}
	}
	c.rows, c.err = r.stale()
	return c
}

// stale returns the rows that were written under the session's token.
func (r *randomSession) stale() (rows string, err error) {
	conn, err := pgx.Connect(r.t.Context(), r.pg.DSN("postgres", "postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(r.t.Context())
	err = conn.QueryRow(r.t.Context(), `SELECT coalesce(string_agg(id || '=' || tag, ' ' ORDER BY id), '') FROM w
		WHERE starts_with(tag, $1 || '/1') OR position('"' || $1 || '": 1' in tag) > 0`, r.key).Scan(&rows)
	return rows, err
}

// A generator makes messages in any order, right and wrong ones.
type generator struct {
	r    *rand.Rand
	key  string
	copy map[string]bool // the statements and portals that may be a COPY from the client
}

func newGenerator(seed uint64) *generator {
	return &generator{r: rand.New(rand.NewPCG(seed, 7)), copy: map[string]bool{}}
}

func (g *generator) n(n int) int { return g.r.IntN(n) }

// one says yes once in n times.
func (g *generator) one(n int) bool { return g.n(n) == 0 }

func pick[T any](g *generator, from ...T) T { return from[g.n(len(from))] }

// text returns one of texts, for a session that is to lose the lock of key.
func (g *generator) text(texts []string) string {
	return strings.ReplaceAll(pick(g, texts...), "KEY", g.key)
}

// batch makes what is sent at once.
func (g *generator) batch(key string) (all []pgproto3.FrontendMessage) {
	g.key = key
	for range 1 + g.n(3) {
		if g.n(5) < 2 {
			all = append(all, g.query()...)
		} else {
			all = append(all, g.segment()...)
		}
	}
	return all
}

func (g *generator) query() []pgproto3.FrontendMessage {
	sql := g.text(randomTexts)
	if g.one(2) {
		sql = g.text(randomQueries)
	}
	all := one(query(sql))
	for range strings.Count(sql, "FROM STDIN") {
		all = append(all, g.data()...)
	}
	return all
}

// segment makes a pipeline up to its Sync.
func (g *generator) segment() (all []pgproto3.FrontendMessage) {
	for range 1 + g.n(5) {
		switch n := g.n(50); {
		case n < 27:
			all = append(all, g.statement()...)
		case n < 35:
			all = append(all, g.execute(g.statementName(), g.portalName())...)
		case n < 39:
			all = append(all, g.run("p")...)
		case n < 42:
			all = append(all, &pgproto3.Flush{})
		case n < 44:
			all = append(all, g.parse(g.statementName(), g.text(randomTexts)))
		case n < 46:
			all = append(all, &pgproto3.Close{ObjectType: pick[byte](g, 'S', 'P'), Name: g.statementName()})
		case n < 48:
			all = append(all, &pgproto3.Describe{ObjectType: pick[byte](g, 'S', 'P'), Name: g.statementName()})
		case n < 49:
			all = append(all, &pgproto3.CopyDone{})
		default:
			all = append(all, g.query()...)
		}
	}
	return append(all, &pgproto3.Sync{})
}

func (g *generator) statementName() string { return pick(g, "", "", "a", "b") }
func (g *generator) portalName() string    { return pick(g, "", "", "p") }

func (g *generator) parse(name, sql string) pgproto3.FrontendMessage {
	g.copy["S"+name] = g.copy["S"+name] || strings.Contains(sql, "FROM STDIN")
	return &pgproto3.Parse{Name: name, Query: sql}
}

// statement makes the usual sequence of messages for one.
func (g *generator) statement() (all []pgproto3.FrontendMessage) {
	name, portal := g.statementName(), g.portalName()
	if name != "" && !g.one(3) {
		all = append(all, &pgproto3.Close{ObjectType: 'S', Name: name})
		g.copy["S"+name] = false
	}
	all = append(all, g.parse(name, g.text(randomTexts)))
	if g.one(5) {
		all = append(all, &pgproto3.Describe{ObjectType: 'S', Name: name})
	}
	if portal != "" && !g.one(3) {
		all = append(all, &pgproto3.Close{ObjectType: 'P', Name: portal})
	}
	return append(all, g.execute(name, portal)...)
}

// execute binds a statement and runs it.
func (g *generator) execute(name, portal string) []pgproto3.FrontendMessage {
	all := one(&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name})
	g.copy["P"+portal] = g.copy["P"+portal] || g.copy["S"+name]
	if g.one(4) {
		all = append(all, &pgproto3.Describe{ObjectType: 'P', Name: portal})
	}
	return append(all, g.run(portal)...)
}

func (g *generator) run(portal string) []pgproto3.FrontendMessage {
	rows := uint32(0)
	if g.one(5) {
		rows = uint32(1 + g.n(3))
	}
	all := one(&pgproto3.Execute{Portal: portal, MaxRows: rows})
	if !g.copy["P"+portal] {
		return all
	}
	if g.one(2) {
		all = append(all, &pgproto3.Sync{})
	}
	return append(all, g.data()...)
}

// data makes what a COPY from the client takes.
func (g *generator) data() (all []pgproto3.FrontendMessage) {
	for range g.n(4) {
		row := fmt.Sprintf("%d\tc\n", g.n(1_000_000))
		if g.one(7) {
			row = "bad\n"
		}
		all = append(all, &pgproto3.CopyData{Data: []byte(row)})
		if g.one(10) {
			all = append(all, &pgproto3.Flush{})
		}
	}
	if g.one(5) {
		return append(all, &pgproto3.CopyFail{Message: "no"})
	}
	return append(all, &pgproto3.CopyDone{})
}

// tellAll says in short what messages are.
func tellAll(messages []pgproto3.FrontendMessage) string {
	var said []string
	for _, m := range messages {
		switch m := m.(type) {
		case *pgproto3.Query:
			said = append(said, fmt.Sprintf("Q(%s)", m.String))
		case *pgproto3.Parse:
			said = append(said, fmt.Sprintf("P(%s:%s)", m.Name, m.Query))
		case *pgproto3.Bind:
			said = append(said, fmt.Sprintf("B(%s<-%s)", m.DestinationPortal, m.PreparedStatement))
		case *pgproto3.Execute:
			said = append(said, fmt.Sprintf("E(%s,%d)", m.Portal, m.MaxRows))
		case *pgproto3.Describe:
			said = append(said, fmt.Sprintf("D(%c %s)", m.ObjectType, m.Name))
		case *pgproto3.Close:
			said = append(said, fmt.Sprintf("C(%c %s)", m.ObjectType, m.Name))
		case *pgproto3.CopyData:
			said = append(said, fmt.Sprintf("d(%q)", m.Data))
		default:
			said = append(said, strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3."))
		}
	}
	return strings.Join(said, " ")
}
