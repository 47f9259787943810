package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// sendCancel sends a cancel request and waits for the answer, which is an end.
// config encrypts, on request.
func sendCancel(t *testing.T, addr string, key []byte, config *tls.Config) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if config != nil {
		conn.Write([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2f"))
		if answer := make([]byte, 1); !readFull(conn, answer) || answer[0] != 'S' {
			t.Fatalf("asked for TLS: got %q, want S", answer)
		}
		conn = tls.Client(conn, config)
	}
	conn.Write(cancelPacket(wire.CodeCancel, key))
	if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
		t.Errorf("cancel request: got %q, %v, want an end", got, err)
	}
}

func readFull(r io.Reader, p []byte) bool {
	_, err := io.ReadFull(r, p)
	return err == nil
}

func cancelPacket(code uint32, key []byte) []byte {
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(key)))
	return append(binary.BigEndian.AppendUint32(packet, code), key...)
}

// cancelKey is what names a session in a cancel request.
func cancelKey(c *pgx.Conn) []byte {
	return append(binary.BigEndian.AppendUint32(nil, c.PgConn().PID()), c.PgConn().SecretKey()...)
}

// A gate stands before PostgreSQL and holds cancel requests back until it is
// opened.
type gate struct {
	addr    string
	arrived chan struct{} // one token for each cancel request
	opened  chan struct{}
	once    sync.Once
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	ln := listen(t)
	g := &gate{addr: ln.Addr().String(), arrived: make(chan struct{}, 100), opened: make(chan struct{})}
	acceptAll(t, ln, func(conn net.Conn) { g.pass(conn, to) }, g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// pass relays one connection; it ends with either side.
func (g *gate) pass(conn net.Conn, to string) {
	defer conn.Close()
	in := wire.NewReader(conn)
	packet, err := in.ReadPacket(wire.MaxStartupLength)
	if err != nil {
		return
	}
	if binary.BigEndian.Uint32(packet[4:]) == wire.CodeCancel {
		g.arrived <- struct{}{}
		<-g.opened
	}
	onward, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer onward.Close()
	onward.Write(append(packet, in.Rest()...))
	var back sync.WaitGroup
	back.Go(func() { io.Copy(conn, onward); conn.Close() })
	io.Copy(onward, conn)
	onward.Close()
	back.Wait()
}

// start runs a statement and returns where its error comes.
func start(c *pgx.Conn, p protocol, sql string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- p.run(context.Background(), c, sql) }()
	return done
}

// A cancel request that is on its way when its statement ends doesn't hit the
// next one, which waits for it, and not for ever.
func TestSession_CancelOnItsWay(t *testing.T) {
	s := newStack(t, 0)
	for _, c := range []struct {
		name     string
		timeout  time.Duration
		protocol protocol
	}{
		{"delivered", 20 * time.Second, simple},
		{"delivered, extended", 20 * time.Second, extended},
		{"never delivered", 200 * time.Millisecond, simple},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(s.t, s.pg.Addr())
			addr := s.addProxy(g.addr, func(server *proxy.Server) { server.CancelTimeout = c.timeout })
			conn := s.connect("postgres://postgres@" + addr + "/postgres?sslmode=disable")
			first := start(conn, c.protocol, "SELECT pg_sleep(600) /* first */")
			s.running("/* first */")
			var canceled sync.WaitGroup
			told := make(chan struct{})
			canceled.Go(func() { sendCancel(t, addr, cancelKey(conn), nil); close(told) })
			<-g.arrived
			s.exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%/* first */%' AND pid <> pg_backend_pid()")
			if err := <-first; code(err) != "57014" {
				t.Fatalf("first: got %v, want 57014", err)
			}
			next := start(conn, c.protocol, "SELECT pg_sleep(1) /* next */")
			if c.timeout > time.Second {
				s.neverRuns("/* next */", 300*time.Millisecond)
				g.open()
			}
			if err := <-next; err != nil {
				t.Errorf("next: got %v, want no error", err)
			}
			select {
			case <-told:
				if c.timeout < time.Second {
					t.Error("the client was told of a delivery that PostgreSQL has yet to take")
				}
			default:
			}
			g.open()
			canceled.Wait()
		})
	}
}

// neverRuns looks for a while whether PostgreSQL runs a text.
func (s *stack) neverRuns(text string, long time.Duration) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(long); ; {
		var n int
		if err := s.admin.QueryRow(s.t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%' || $1 || '%'", text).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		if n > 0 {
			s.t.Errorf("%s runs", text)
			return
		}
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
}

// A cancel request for a session that waits for nothing, or that nobody has,
// is dropped: PostgreSQL doesn't hear of it.
func TestSession_CancelTooLate(t *testing.T) {
	s := newStack(t, 0)
	s.holders.hold("k", 1)
	g := newGate(s.t, s.pg.Addr())
	g.open()
	s.addProxy(g.addr)
	conn, tagged := s.session(0, "", 0), s.session(0, "k", 1)
	if _, err := tagged.Exec(t.Context(), "BEGIN; INSERT INTO t VALUES (1, 'late')"); err != nil {
		t.Fatal(err)
	}
	gone := s.session(0, "", 0)
	keys := map[string][]byte{
		"idle": cancelKey(conn), "in a transaction": cancelKey(tagged), "gone": cancelKey(gone),
		"wrong": append(cancelKey(conn)[:4:4], "wrong"...), "short": {1, 2}, "none": nil, "long": make([]byte, 300),
	}
	gone.Close(t.Context())
	poll.Until(t, "the session is gone", func() bool {
		var n int
		err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", gone.PgConn().PID()).Scan(&n)
		return err == nil && n == 0
	})
	for name, key := range keys {
		sendCancel(t, s.addrs[0], key, nil)
		select {
		case <-g.arrived:
			t.Errorf("%s: the request was passed on", name)
		default:
		}
	}
	if _, err := tagged.Exec(t.Context(), "COMMIT"); err != nil || s.count("v = 'late'") != 1 {
		t.Errorf("COMMIT after cancel requests that came too late: %v", err)
	}
}

// slowClaims lets claims wait until they are released.
type slowClaims struct {
	proxy.Claims
	entered, released chan struct{}
}

func (c *slowClaims) Claim(ctx context.Context, database string, p fencing.Pair) error {
	select {
	case c.entered <- struct{}{}:
	default:
	}
	select {
	case <-c.released:
		return c.Claims.Claim(ctx, database, p)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A cancel request breaks off the claim that the client waits for: the tag is
// refused, nothing runs under it, and it can be set again.
func TestSession_CancelClaim(t *testing.T) {
	s := newStack(t, 0)
	s.holders.hold("k", 1)
	claims := &slowClaims{entered: make(chan struct{}, 1), released: make(chan struct{})}
	addr := s.addProxy(s.pg.Addr(), func(server *proxy.Server) {
		claims.Claims, server.Claims = server.Claims, claims
	})
	var conns []*pgx.Conn
	for _, p := range protocols {
		conn := s.session(0, "", 0)
		if err := p.run(t.Context(), conn, "SET fence.key = 'k'"); err != nil {
			t.Fatal(err)
		}
		done := start(conn, p, "SET fence.token = 1")
		<-claims.entered
		sendCancel(t, addr, cancelKey(conn), nil)
		err := <-done
		if code(err) != "57014" || pgError(err).Where != "" {
			t.Errorf("%s: got %v, want 57014 without context", p, err)
		}
		for _, sql := range []string{"SELECT 1", "INSERT INTO t VALUES (10, 'canceled')"} {
			if err := p.run(t.Context(), conn, sql); code(err) != string(fencing.CodeUnverified) {
				t.Errorf("%s: %s: got %v, want %s", p, sql, err, fencing.CodeUnverified)
			}
		}
		conns = append(conns, conn)
	}
	raw := s.startTagged(addr)
	<-claims.entered
	sendCancel(t, addr, raw.key, nil)
	if types, _ := readToReady(t, raw.conn); types != "NZ" {
		t.Errorf("at startup: got %q, want a warning and ReadyForQuery", types)
	}
	close(claims.released)
	for i, p := range protocols {
		sql := fmt.Sprintf("INSERT INTO t VALUES (%d, 'again')", 20+i)
		if err := p.run(t.Context(), conns[i], "SET fence.token = 1"); err != nil {
			t.Errorf("%s: again: %v", p, err)
		}
		if err := p.run(t.Context(), conns[i], sql); err != nil {
			t.Errorf("%s: %s: %v", p, sql, err)
		}
	}
	raw.conn.Write(frame('Q', "INSERT INTO t VALUES (29, 'again')\x00"))
	if types, _ := readToReady(t, raw.conn); types != "CZ" {
		t.Errorf("at startup, later: got %q, want CZ", types)
	}
	if got := s.count("v = 'canceled'"); got != 0 {
		t.Errorf("%d rows were written under a tag that was not claimed", got)
	}
}

// A started is a session whose startup waits for the claim.
type started struct {
	conn net.Conn
	key  []byte
}

func (s *stack) startTagged(addr string) started {
	s.t.Helper()
	p := dialPeer(s.t, addr)
	p.startup(3<<16, "user\x00postgres\x00database\x00postgres\x00fence.key\x00k\x00fence.token\x001\x00")
	for {
		t, body, err := p.read()
		if err != nil {
			s.t.Fatal(err)
		}
		if t == wire.BackendKeyData {
			return started{&rest{p.conn, io.MultiReader(strings.NewReader(string(p.in.Rest())), p.conn)}, body}
		}
	}
}

// rest is a connection some of whose bytes were read ahead.
type rest struct {
	net.Conn
	in io.Reader
}

func (r *rest) Read(p []byte) (int, error) { return r.in.Read(p) }
