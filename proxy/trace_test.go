package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A tracer keeps what is recorded.
type tracer struct {
	mu    sync.Mutex
	spans []proxy.Span
}

func (r *tracer) Record(s proxy.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
}

// take waits until there are n, and takes them out.
func (r *tracer) take(t *testing.T, n int) []proxy.Span {
	t.Helper()
	var got []proxy.Span
	poll.Until(t, fmt.Sprintf("%d spans", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = r.spans
		return len(got) >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = nil
	return got
}

// newTraced returns a stack whose proxy is traced, and a session of it that has
// claimed token 1 of k.
func newTraced(t *testing.T) (*stack, *tracer, *pgx.Conn) {
	t.Helper()
	s, spans := newStack(t, 0), &tracer{}
	s.addProxy(s.pg.Addr(), func(p *proxy.Server) { p.Tracer = spans })
	s.holders.hold("k", 1)
	c := s.session(0, "k", 1)
	spans.take(t, 1)
	return s, spans, c
}

// brief is what tests compare of spans.
func brief(spans []proxy.Span) string {
	var all []string
	for _, s := range spans {
		line := fmt.Sprintf("%v %s %d", s.Kind, s.Parent, s.Checks)
		for _, p := range s.Tag {
			line += fmt.Sprintf(" %s=%d", p.Key, p.Token)
		}
		all = append(all, strings.TrimSpace(line+" "+s.Code))
	}
	return strings.Join(all, ", ")
}

func traced(parent string) string { return " /*route='r',traceparent='" + parent + "'*/" }

// Claims and fenced transactions are traced, each under what its own statement says
// of its trace, and nothing else is.
func TestSession_Traces(t *testing.T) {
	s := newStack(t, 1)
	var spans tracer
	addr := s.addProxy(s.pg.Addr(), func(p *proxy.Server) { p.Tracer = &spans })
	dsn := "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	id := 0
	for _, mode := range []protocol{simple, extended} {
		t.Run(string(mode), func(t *testing.T) {
			key := "k" + string(mode)
			s.holders.hold(key, 5)
			c := s.connect(dsn)
			run := func(sql, want string) {
				t.Helper()
				if err := mode.run(t.Context(), c, sql); code(err) != want {
					t.Errorf("%s: got %v, want %q", sql, err, want)
				}
			}
			expect := func(n int, want string) {
				t.Helper()
				if got := brief(spans.take(t, n)); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			tag := " " + key + "=5"
			insert := func() string { id++; return fmt.Sprintf("INSERT INTO t VALUES (%d, '/*traceparent=''x''*/')", 100+id) }
			run("SELECT 1"+traced("untagged"), "")
			run("SET fence.key = '"+key+"'", "")
			run("SET fence.token = 5"+traced("claim"), "")
			expect(1, "claim claim 0"+tag)
			run("SELECT v FROM t"+traced("read"), "") // a view may write
			expect(1, "transaction read 1"+tag)
			run("SHOW work_mem"+traced("nothing"), "")
			run(insert()+traced("write"), "")
			expect(1, "transaction write 1"+tag)
			run(insert(), "")
			expect(1, "transaction  1"+tag)
			run("BEGIN"+traced("begin"), "")
			run("SELECT 1", "")
			run(insert()+traced("first"), "")
			run("SAVEPOINT a", "")
			run("ROLLBACK TO a", "")
			run(insert()+traced("second"), "")
			run("COMMIT"+traced("commit"), "")
			expect(1, "transaction first 2"+tag)
			run("BEGIN", "")
			run(insert()+traced("undone"), "")
			run("ROLLBACK", "")
			expect(1, "transaction undone 1"+tag)

			s.holders.hold(key, 6) // claimed in the database, past this proxy's knowledge
			s.raise(0, key, 6)
			spans.take(t, 0)
			run(insert()+traced("stale"), "LF001")
			if got := brief(spans.take(t, 1)); !strings.HasPrefix(got, "transaction stale 1"+tag+" LF001") && !strings.HasPrefix(got, "transaction stale 0"+tag+" LF001") {
				t.Errorf("a stale write: got %s", got)
			}
		})
	}
}

// A prepared statement is traced as its text says, whenever it runs.
func TestSession_TracesPrepared(t *testing.T) {
	_, spans, c := newTraced(t)
	for name, parent := range map[string]string{"a": "one", "b": "two"} {
		if _, err := c.Prepare(t.Context(), name, "UPDATE t SET v = v"+traced(parent)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "a"} {
		if _, err := c.Exec(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := brief(spans.take(t, 3)), "transaction one 1 k=1, transaction two 1 k=1, transaction one 1 k=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Each transaction of a pipeline has a span of its own, and so has one that ends
// with its session.
func TestSession_TracesPipelines(t *testing.T) {
	s, spans, c := newTraced(t)
	s.exec("CREATE TABLE held (i int)")
	s.exec("BEGIN; LOCK TABLE held")
	pipeline := c.PgConn().StartPipeline(t.Context())
	for i, table := range []string{"t (id)", "held", "t (id)"} {
		pipeline.SendQueryParams(fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, i)+traced(fmt.Sprint("p", i)), nil, nil, nil, nil)
		pipeline.SendPipelineSync()
	}
	if err := pipeline.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := brief(spans.take(t, 1)), "transaction p0 1 k=1"; got != want {
		t.Errorf("while the second waits for a lock: got %s, want %s", got, want)
	}
	s.exec("COMMIT")
	if err := pipeline.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := brief(spans.take(t, 2)), "transaction p1 1 k=1, transaction p2 1 k=1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	tx, err := c.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (9, 'x')"+traced("lost")); err != nil {
		t.Fatal(err)
	}
	s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
	got := spans.take(t, 1)
	if b := brief(got); b != "transaction lost 1 k=1 57P01" {
		t.Errorf("got %s, want one that ended with its session", b)
	}
	if got[0].Begin.IsZero() || got[0].End.Before(got[0].Begin) || time.Since(got[0].End) > time.Hour {
		t.Errorf("got %v to %v", got[0].Begin, got[0].End)
	}
}

// What a comment says may be anything; it costs the statement nothing.
func TestSession_TracesHostile(t *testing.T) {
	_, spans, c := newTraced(t)
	for name, c2 := range map[string]struct{ comment, parent, code string }{
		"nonsense":              {" /*traceparent='nonsense'*/", "nonsense", ""},
		"empty":                 {" /*traceparent=''*/", "", ""},
		"too long to be one":    {" /*traceparent='" + strings.Repeat("0", 200) + "'*/", "", ""},
		"a comment of 1 MB":     {" /*" + strings.Repeat("xtraceparent='", 700000) + "*/", "", ""},
		"a comment in comments": {" " + strings.Repeat("/*", 500) + "traceparent='x'" + strings.Repeat("*/", 500), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.Exec(t.Context(), "UPDATE t SET v = v"+c2.comment); code(err) != c2.code {
				t.Fatalf("got %v, want %q", err, c2.code)
			}
			if got := spans.take(t, 1); got[0].Parent != c2.parent {
				t.Errorf("got the parent %q, want %q", got[0].Parent, c2.parent)
			}
		})
	}
	if _, err := c.Exec(t.Context(), "UPDATE t SET v = v /*traceparent='x'"); code(err) != "42601" {
		t.Errorf("unterminated: got %v, want PostgreSQL's own error", err)
	}
}
