package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A recorder relays connections to an address and keeps what went over them.
type recorder struct {
	ln   net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	up   bytes.Buffer // towards the server
	down bytes.Buffer // towards the client
	// chunks are the directions of what was read, in order: '>' to the server.
	chunks []byte
	conns  []net.Conn
}

func newRecorder(t *testing.T, to string) *recorder {
	t.Helper()
	ln := listen(t)
	r := &recorder{ln: ln, to: to}
	r.wg.Add(1)
	go r.accept()
	t.Cleanup(func() {
		ln.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

func (r *recorder) addr() string { return r.ln.Addr().String() }

func (r *recorder) accept() {
	defer r.wg.Done()
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.to)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.wg.Add(2)
		go r.copy(server, client, '>', &r.up)
		go r.copy(client, server, '<', &r.down)
	}
}

func (r *recorder) copy(to, from net.Conn, direction byte, keep *bytes.Buffer) {
	defer r.wg.Done()
	defer to.(*net.TCPConn).CloseWrite()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		if n > 0 {
			r.chunks = append(r.chunks, direction)
			keep.Write(buf[:n])
		}
		r.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks every connection.
func (r *recorder) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up.Reset()
	r.down.Reset()
	r.chunks = nil
}

func (r *recorder) seen() (up, down []byte, chunks string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.up.Bytes()), bytes.Clone(r.down.Bytes()), string(r.chunks)
}

// A fenced autocommit write costs exactly one round trip: the check travels
// in the same network write as the statement, and nothing waits in between.
func TestSession_OneRoundTrip(t *testing.T) {
	s := newStack(t, 0)
	r := newRecorder(t, s.pg.Addr())
	s.addProxy(r.addr())
	s.holders.hold("k", 1)
	s.exec("INSERT INTO t VALUES (1, 'x')")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		for _, sql := range []string{"UPDATE t SET v = 'y' WHERE id = $1", "SELECT v FROM t WHERE id = $1"} {
			t.Run(mode.String()+"/"+strings.Fields(sql)[0], func(t *testing.T) {
				c := s.session(0, "k", 1)
				for range 2 { // the first one makes pgx prepare
					r.reset()
					if _, err := c.Exec(t.Context(), sql, mode, 1); err != nil {
						t.Fatal(err)
					}
				}
				up, _, chunks := r.seen()
				if !bytes.Contains(up, []byte("fence")) {
					t.Errorf("no check went along: %q", up)
				}
				if chunks != "><" {
					t.Errorf("network reads between proxy and PostgreSQL: got %q, want one each way", chunks)
				}
			})
		}
	}
}

// What an untagged client sends and gets is byte for byte what PostgreSQL
// gets and sends.
func TestSession_UntaggedByteForByte(t *testing.T) {
	s := newStack(t, 0)
	behind := newRecorder(t, s.pg.Addr())
	before := newRecorder(t, s.addProxy(behind.addr()))
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&application_name=bytes", before.addr()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	exerciseEverything(t, c)
	c.Close(t.Context())
	poll.Until(t, "the last bytes", func() bool {
		up1, down1, _ := before.seen()
		up2, down2, _ := behind.seen()
		return bytes.Equal(up1, up2) && bytes.Equal(down1, down2)
	})
	up, down, _ := before.seen()
	if len(up) < 1000 || len(down) < 1000 {
		t.Errorf("only %d bytes up and %d down were compared", len(up), len(down))
	}
}

// exerciseEverything uses as much of the protocol as pgx reaches.
func exerciseEverything(t *testing.T, c *pgx.Conn) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Exec(ctx, "CREATE TEMP TABLE p (id int PRIMARY KEY, v text)"))
	for i, mode := range modes {
		must(c.Exec(ctx, "INSERT INTO p VALUES ($1, $2)", mode, i, strings.Repeat("ü", 5000)))
		if _, err := c.Exec(ctx, "INSERT INTO p VALUES ($1, $2)", mode, i, "again"); code(err) != "23505" {
			t.Fatalf("got %v, want 23505", err)
		}
		rows, err := c.Query(ctx, "SELECT generate_series(1, 2000), repeat('x', 100)", mode)
		must(nil, err)
		rows.Close()
		must(nil, rows.Err())
	}
	if _, err := c.Exec(ctx, "SELECT 1; SELECT * FROM nowhere; SELECT 2"); code(err) != "42P01" {
		t.Fatalf("got %v, want 42P01", err)
	}
	must(c.PgConn().CopyFrom(ctx, strings.NewReader("10\ta\n11\tb\n"), "COPY p FROM STDIN"))
	must(c.PgConn().CopyTo(ctx, io.Discard, "COPY p TO STDOUT"))
	if _, err := c.PgConn().CopyFrom(ctx, strings.NewReader("10\ta\nno\n"), "COPY p FROM STDIN"); err == nil {
		t.Fatal("a bad COPY succeeded")
	}
	var b pgx.Batch
	b.Queue("SELECT 1")
	b.Queue("INSERT INTO p VALUES (50, 'x')")
	b.Queue("SELECT 1/0")
	b.Queue("INSERT INTO p VALUES (51, 'x')")
	if err := c.SendBatch(ctx, &b).Close(); code(err) != "22012" {
		t.Fatalf("got %v, want 22012", err)
	}
	p := c.PgConn().StartPipeline(ctx)
	p.SendPrepare("st", "SELECT $1::int", nil)
	p.SendQueryPrepared("st", [][]byte{[]byte("7")}, nil, nil)
	must(nil, p.Sync())
	p.SendQueryParams("SELECT nonsense", nil, nil, nil, nil)
	p.SendQueryPrepared("st", [][]byte{[]byte("8")}, nil, nil)
	must(nil, p.Sync())
	p.SendDeallocate("st")
	must(nil, p.Sync())
	for {
		r, err := p.GetResults()
		if err == nil && r == nil {
			break
		}
	}
	must(nil, p.Close())
	tx, err := c.Begin(ctx)
	must(nil, err)
	must(tx.Exec(ctx, "DECLARE c CURSOR FOR SELECT generate_series(1, 10)"))
	must(tx.Exec(ctx, "FETCH 3 FROM c"))
	must(nil, tx.Rollback(ctx))
	must(c.Exec(ctx, "LISTEN n; NOTIFY n, 'hello'"))
	must(c.WaitForNotification(ctx))
	must(c.Exec(ctx, "DO $$ BEGIN RAISE NOTICE 'hi'; END $$"))
	must(c.Exec(ctx, "SET client_encoding = 'LATIN1'; RESET client_encoding"))
	must(c.Exec(ctx, ""))
	must(c.Exec(ctx, "DISCARD ALL"))
}

// The same client can't tell a tagged session from an untagged one by what it
// reads.
func TestSession_TaggedSameReplies(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	before := newRecorder(t, s.addrs[0])
	var replies [2][]byte
	for i, tagged := range []bool{false, true} {
		c := s.connect(fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&application_name=bytes", before.addr()))
		// Neither DISCARD ALL nor a claim is left for a later round to differ by.
		if tagged {
			s.tag(c, "k", 1)
		} else if _, err := c.Exec(t.Context(), "SET app.x = 1; SET app.y = 2"); err != nil {
			t.Fatal(err)
		}
		before.reset()
		exerciseEverything(t, c)
		if tagged {
			if got := s.count("true"); got != 0 {
				t.Fatal(got)
			}
		}
		_, replies[i], _ = before.seen()
		c.Close(context.Background())
	}
	a, b := withoutVolatile(replies[0]), withoutVolatile(replies[1])
	if a != b {
		t.Errorf("replies differ:\nuntagged %s\ntagged   %s", a, b)
	}
}

// withoutVolatile lists messages, with what differs from session to session
// (process ids, the names of temporary schemas) left out.
func withoutVolatile(stream []byte) string {
	var sb strings.Builder
	for len(stream) >= 5 {
		n := int(stream[1])<<24 | int(stream[2])<<16 | int(stream[3])<<8 | int(stream[4])
		body := stream[5 : 1+n]
		switch stream[0] {
		case 'A':
			body = body[4:]
		case 'T':
			body = body[:2]
		}
		if len(body) > 200 {
			body = body[:200]
		}
		if before, schema, found := bytes.Cut(body, []byte("pg_temp_")); found {
			body = append(bytes.Clone(before), bytes.TrimLeft(schema, "0123456789")...)
		}
		fmt.Fprintf(&sb, "%c %q\n", stream[0], body)
		stream = stream[1+n:]
	}
	return sb.String()
}
