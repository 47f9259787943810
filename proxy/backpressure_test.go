package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// mostPerClient is what a client that doesn't read may cost the proxy, in bytes.
const mostPerClient = 256 << 10

// heap is what is in use after a collection; pools give theirs back at the
// second.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// stuff sends the same again and again until nobody takes any more of it, or
// 100 MB of it were taken.
func stuff(conn net.Conn, what []byte) {
	chunk := bytes.Repeat(what, max(1, 64<<10/len(what)))
	for range 100 << 20 / len(chunk) {
		conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if _, err := conn.Write(chunk); err != nil {
			return
		}
	}
}

// A client that sends and doesn't read costs a bounded amount of memory,
// whatever it sends.
func TestSession_ClientThatDoesNotRead(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	const clients = 4
	prepared := string(frame('P', "p\x00SELECT 1\x00\x00\x00")) + string(frame('S', ""))
	row := string(frame('B', "\x00p\x00\x00\x00\x00\x00\x00\x00")) + string(frame('E', "\x00\x00\x00\x00\x00"))
	for _, c := range []struct{ name, first, then string }{
		{"results", string(frame('Q', "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)\x00")), ""},
		{"results of a long text", string(frame('Q', "SELECT repeat('x', 1000) FROM generate_series(1, 1000000) --"+strings.Repeat("é", 4<<20)+"\x00")), ""},
		{"a long row", string(frame('Q', "SELECT repeat('x', 100000000)\x00")), ""},
		{"a long error", string(frame('Q', "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 50000000); END $$\x00")), ""},
		{"notices", string(frame('Q', "DO $$ BEGIN FOR i IN 1..1000000 LOOP RAISE NOTICE '%', repeat('x', 1000); END LOOP; END $$\x00")), ""},
		{"Syncs", "", string(frame('S', ""))},
		{"Queries", "", string(frame('Q', "SELECT 1\x00"))},
		{"Parses", "", string(frame('P', "\x00SELECT 1\x00\x00\x00"))},
		{"Executes", prepared, row},
		{"Executes and Syncs", prepared, row + string(frame('S', ""))},
		{"Describes of what isn't there", "", string(frame('D', "Snone\x00")) + string(frame('S', ""))},
		{"Syncs in a COPY", string(frame('Q', "COPY t FROM STDIN\x00")), string(frame('d', "")) + string(frame('S', ""))},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(c.name+"/key="+key, func(t *testing.T) {
				conns := make([]net.Conn, clients)
				for i := range conns {
					conns[i] = s.connectRaw(key)
					conns[i].(*net.TCPConn).SetReadBuffer(32 << 10)
				}
				before := heap()
				done := make(chan struct{})
				for _, conn := range conns {
					go func() {
						conn.Write([]byte(c.first))
						if c.then != "" {
							stuff(conn, []byte(c.then))
						}
						done <- struct{}{}
					}()
				}
				for range conns {
					<-done
				}
				if c.then == "" {
					s.stuck(t, clients)
				}
				cost := 0
				poll.Until(t, "a client that doesn't read costs little", func() bool {
					cost = (heap() - before) / clients
					return cost <= mostPerClient
				})
				t.Logf("a client costs %d kB", cost>>10)
				for _, conn := range conns {
					conn.Close()
				}
				s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'raw'")
				s.gone()
			})
		}
	}
}

// stuck waits until n backends wait for a client to read, and go on doing so.
func (s *stack) stuck(t *testing.T, n int) {
	t.Helper()
	row := 0
	poll.Until(t, "backends wait for their clients to read", func() bool {
		var waiting int
		err := s.admin.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'raw' AND wait_event = 'ClientWrite'").Scan(&waiting)
		if row++; err != nil || waiting != n {
			row = 0
		}
		return row == 20
	})
}

// Both directions may be full at once: what the client reads late is all there.
func TestSession_BothWaysFull(t *testing.T) {
	s := newStack(t, 1)
	s.holders.hold("k", 1)
	s.exec(`CREATE TABLE noisy (v text);
		CREATE FUNCTION noise() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''%'', repeat(''n'', 1000); RETURN NEW; END';
		CREATE TRIGGER noise BEFORE INSERT ON noisy FOR EACH ROW EXECUTE FUNCTION noise()`)
	const times = 8000
	line := string(frame('d', strings.Repeat("x", 2000)+"\n"))
	segment := string(frame('P', "\x00SELECT repeat('x', 5000)\x00\x00\x00")) +
		string(frame('B', "\x00\x00\x00\x00\x00\x00\x00\x00")) + string(frame('E', "\x00\x00\x00\x00\x00"))
	for _, c := range []struct {
		name, sends string
		ready       int
	}{
		{"pipelined queries", strings.Repeat(string(frame('Q', "SELECT repeat('x', 5000) -- "+strings.Repeat("y", 2000)+"\x00")), times), times},
		{"pipelined segments", strings.Repeat(segment+string(frame('S', "")), times), times},
		{"one segment", strings.Repeat(segment, times) + string(frame('S', "")), 1},
		{"COPY with notices", string(frame('Q', "COPY noisy FROM STDIN\x00")) + strings.Repeat(line, times) + string(frame('c', "")), 1},
		{"COPY that fails", string(frame('Q', "COPY t FROM STDIN\x00")) + strings.Repeat(line, times) + string(frame('c', "")) + string(frame('Q', "SELECT 1\x00")), 2},
		{"Syncs in a COPY", string(frame('Q', "COPY noisy FROM STDIN\x00")) + strings.Repeat(string(frame('S', "")), times) + line + string(frame('c', "")) + string(frame('Q', "SELECT 1\x00")), 2},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(c.name+"/key="+key, func(t *testing.T) {
				conn := s.connectRaw(key)
				defer conn.Close()
				conn.(*net.TCPConn).SetReadBuffer(32 << 10)
				half := len(c.sends) / 2
				sent := make(chan error, 1)
				began := make(chan struct{})
				go func() {
					// As much as anybody takes while the client doesn't read.
					conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
					n, err := conn.Write([]byte(c.sends[:half]))
					close(began)
					conn.SetWriteDeadline(time.Time{})
					if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						_, err = conn.Write([]byte(c.sends[n:]))
					}
					sent <- err
				}()
				<-began
				for i := range c.ready {
					if types := readReady(t, conn); types == "" {
						t.Fatalf("after %d of %d answers", i, c.ready)
					}
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
				fmt.Fprintf(conn, "%s", frame('Q', "SELECT 1\x00"))
				if got, want := readReady(t, conn), "TDCZ"; got != want {
					t.Errorf("afterwards: got %s, want %s", got, want)
				}
			})
		}
	}
}

// readReady reads up to a ReadyForQuery, byte for byte, and returns the types
// of what came, less notices.
func readReady(t *testing.T, conn net.Conn) (types string) {
	t.Helper()
	for {
		var h [5]byte
		if _, err := io.ReadFull(conn, h[:]); err != nil {
			t.Errorf("after %q: %v", types, err)
			return ""
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(h[1:]))-4); err != nil {
			t.Errorf("after %q: %v", types, err)
			return ""
		}
		if h[0] != 'N' {
			types += string(h[0])
		}
		if h[0] == 'Z' {
			return types
		}
	}
}

// Messages of the greatest length that PostgreSQL takes go through in both
// directions, in little memory.
func TestSession_LongestMessages(t *testing.T) {
	const body = 0x3fffffff - 4 // PQ_LARGE_MESSAGE_LIMIT, less the length field
	hello := auth(0, "") + "K\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x01" + "Z\x00\x00\x00\x05I"
	got := make(chan string, 1)
	addr := before(t, fakeBackend(t, func(p *peer) {
		p.conn.SetDeadline(time.Now().Add(3 * time.Minute))
		p.conn.Write([]byte(hello))
		var all []string
		for range 3 {
			typ, n, err := p.in.Next()
			if err == nil {
				err = p.in.Skip()
			}
			all = append(all, fmt.Sprintf("%c %d %v", typ, n, err))
		}
		got <- strings.Join(all, ", ")
		p.conn.Write(frame('2', ""))
		sendLong(p.conn, wire.DataRow, body)
		p.conn.Write(append(frame('C', "SELECT 1\x00"), frame('Z', "I")...))
	}), nil)
	p := dialPeer(t, addr)
	p.conn.SetDeadline(time.Now().Add(3 * time.Minute))
	p.startup(3<<16, "user\x00app\x00")
	p.ready(t)
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	sendLong(p.conn, wire.Bind, body)
	p.conn.Write(append(frame('E', "\x00\x00\x00\x00\x00"), frame('S', "")...))
	if got, want := <-got, fmt.Sprintf("B %d <nil>, E 5 <nil>, S 0 <nil>", body); got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	types, longest := readToReady(t, p.conn)
	runtime.ReadMemStats(&end)
	if types != "2DCZ" || longest != body {
		t.Errorf("got messages %s, the longest of %d bytes; want 2DCZ with one of %d", types, longest, body)
	}
	notHeld(t, start, end, 2*body)
}

// notHeld fails where about as much was allocated as the bytes that were
// relayed. It can't be much less: where a reader is faster than what it reads
// from, it takes a buffer for each read, and under the race detector a pool
// throws one in four away.
func notHeld(t *testing.T, start, end runtime.MemStats, relayed uint64) {
	t.Helper()
	if grown := end.TotalAlloc - start.TotalAlloc; grown > relayed/2 {
		t.Errorf("%d MB were allocated to relay %d MB", grown>>20, relayed>>20)
	}
}

// sendLong writes a message of n bytes of body.
func sendLong(conn net.Conn, typ byte, n int) {
	conn.Write(binary.BigEndian.AppendUint32([]byte{typ}, uint32(n+4)))
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for ; n > 0; n -= len(chunk) {
		conn.Write(chunk[:min(n, len(chunk))])
	}
}
