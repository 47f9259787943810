package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// opened is what a server says when it takes a session: any number of settings,
// and the cancel keys given.
func opened(settings int, keys ...string) string {
	says := auth(0, "")
	for range settings {
		says += string(frame('S', "TimeZone\x00Etc/UTC\x00"))
	}
	for _, key := range keys {
		says += string(frame('K', key))
	}
	return says + "Z\x00\x00\x00\x05I"
}

// What a server says to the question for the startup packet's tag, when it
// doesn't answer it, is the end of the session, and the client hears it once.
func TestSession_StartupTagUnread(t *testing.T) {
	report := func(severity, code, message string) string {
		return string(wire.AppendError(nil, wire.Report{Severity: severity, Code: code, Message: message}))
	}
	for name, c := range map[string]struct{ says, want string }{
		"terminated":      {report("FATAL", "57P01", "terminating connection due to administrator command"), "57P01 terminating connection due to administrator command"},
		"after a notice":  {string(frame('N', "SWARNING\x00C01000\x00Mw\x00\x00")) + report("FATAL", "57P02", "crash"), "57P02 crash"},
		"canceled":        {report("ERROR", "57014", "canceling statement due to user request") + "Z\x00\x00\x00\x05I", "57014 canceling statement due to user request"},
		"nothing said":    {"", "end"},
		"no row":          {string(frame('C', "SELECT 0\x00")) + "Z\x00\x00\x00\x05I", "08P01 PostgreSQL did not tell the session's tag"},
		"in small pieces": {report("FATAL", "57P01", "terminating connection due to administrator command"), "57P01 terminating connection due to administrator command"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := before(t, fakeBackend(t, func(p *peer) {
				says := opened(3, "\x00\x00\x00\x01key.")
				p.conn.Write([]byte(says))
				if kind, _, err := p.read(); err != nil || kind != wire.Query {
					t.Errorf("got %q, %v, want a Query", kind, err)
				}
				step := len(c.says)
				if name == "in small pieces" {
					step = 1
				}
				for i := 0; i < len(c.says); i += step {
					p.conn.Write([]byte(c.says[i : i+step]))
				}
			}), nil)
			p := dialPeer(t, addr)
			p.startup(3<<16, "user\x00app\x00fence.key\x00k\x00fence.token\x001\x00")
			if got := p.told(t); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A session starts whatever the number of settings and keys, in one segment or
// byte by byte; a cancel request finds it by its last key.
func TestSession_StartupInPieces(t *testing.T) {
	first, last := "\x00\x00\x00\x01one.", "\x00\x00\x00\x02"+string(make([]byte, 256))
	for name, c := range map[string]struct {
		settings int
		keys     []string
		step     int
	}{
		"no key":         {13, nil, 1 << 20},
		"no settings":    {0, []string{first}, 1 << 20},
		"two keys":       {13, []string{first, last}, 1 << 20},
		"byte by byte":   {13, []string{first, last}, 1},
		"many, in parts": {3000, []string{first, last}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var canceled []string
			asked := make(chan struct{})
			addr := before(t, keyedBackend(t, opened(c.settings, c.keys...), c.step, asked, func(key string) {
				mu.Lock()
				defer mu.Unlock()
				canceled = append(canceled, key)
			}), nil)
			p := dialPeer(t, addr)
			p.startup(3<<16, "user\x00app\x00")
			var types string
			for {
				kind, _, err := p.read()
				if errors.Is(err, io.EOF) || err != nil {
					t.Fatalf("after %q: %v", types[max(0, len(types)-20):], err)
				}
				types += string(kind)
				if kind == wire.ReadyForQuery {
					break
				}
			}
			if want := c.settings + len(c.keys) + 2; len(types) != want {
				t.Errorf("got %d messages, want %d", len(types), want)
			}
			p.conn.Write(frame('Q', "SELECT 1\x00")) // for which no answer comes
			<-asked
			for _, key := range []string{first, last} {
				sendCancel(t, addr, []byte(key), nil)
			}
			var want []string
			if n := len(c.keys); n > 0 {
				want = c.keys[n-1:]
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(canceled, want) {
				t.Errorf("canceled: got %q, want %q", canceled, want)
			}
		})
	}
}

// keyedBackend is a server that says what it is told, in steps of so many bytes,
// closes asked at the first message after that, and answers nothing; canceled
// hears the keys of cancel requests.
func keyedBackend(t *testing.T, says string, step int, asked chan struct{}, canceled func(key string)) string {
	t.Helper()
	ln := listen(t)
	acceptAll(t, ln, func(conn net.Conn) {
		defer conn.Close()
		p := newPeer(conn)
		packet, err := p.in.ReadPacket(wire.MaxStartupLength)
		switch {
		case err != nil:
			return
		case packet[4] == 4: // not a version
			canceled(string(packet[8:]))
			return
		}
		for i := 0; i < len(says); i += step {
			p.conn.Write([]byte(says[i:min(i+step, len(says))]))
		}
		if _, _, err := p.read(); err == nil {
			close(asked)
			p.read()
		}
	})
	return ln.Addr().String()
}

// A readback that is canceled, or fails otherwise, was run for the client's
// statement: the client hears of it, and nothing runs that needed it.
func TestSession_ReadbackFails(t *testing.T) {
	s := newStack(t, 0)
	s.holders.hold("k", 1)
	const canceled = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '57014', MESSAGE = 'canceled'; END $$\x00"
	var broken atomic.Bool
	var changed atomic.Int32
	ln := listen(t)
	acceptAll(t, ln, func(conn net.Conn) {
		tamper(conn, s.pg.Addr(), func(kind byte, body []byte) []byte {
			name, _, _ := wire.CString(body)
			if broken.Load() && kind == wire.Parse && string(name) == "fenceproxy.readback" {
				changed.Add(1)
				return append(append([]byte(nil), name...), "\x00"+canceled+"\x00\x00"...)
			}
			return body
		})
	})
	s.addProxy(ln.Addr().String())
	for _, p := range protocols {
		for _, block := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, block=%v", p, block), func(t *testing.T) {
				conn := s.session(0, "k", 1)
				if block {
					if err := p.run(t.Context(), conn, "BEGIN"); err != nil {
						t.Fatal(err)
					}
				}
				broken.Store(true)
				// Which tag that makes only PostgreSQL can tell.
				if err := p.run(t.Context(), conn, "SELECT set_config('fence.key', lower('K'), false)"); err != nil {
					t.Fatal(err)
				}
				for i, sql := range []string{"SELECT 'unclaimed'", "INSERT INTO t VALUES (1, 'unclaimed')"} {
					want := "57014"
					if block && i > 0 {
						want = "25P02"
					}
					if err := p.run(t.Context(), conn, sql); code(err) != want {
						t.Errorf("%s: got %v, want %s", sql, err, want)
					}
				}
				broken.Store(false)
				if err := p.run(t.Context(), conn, "ROLLBACK"); err != nil {
					t.Errorf("ROLLBACK: %v", err)
				}
				if err := p.run(t.Context(), conn, "SELECT 1"); err != nil {
					t.Errorf("after that: %v", err)
				}
			})
		}
	}
	if changed.Load() == 0 {
		t.Error("there was no readback that could fail")
	}
	if got := s.count("v = 'unclaimed'"); got != 0 {
		t.Errorf("%d rows were written after a readback that failed", got)
	}
}

// tamper relays one connection to PostgreSQL and changes what change changes.
func tamper(conn net.Conn, to string, change func(kind byte, body []byte) []byte) {
	defer conn.Close()
	in := wire.NewReader(conn)
	packet, err := in.ReadPacket(wire.MaxStartupLength)
	if err != nil {
		return
	}
	onward, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer onward.Close()
	var back sync.WaitGroup
	back.Go(func() { io.Copy(conn, onward); conn.Close() })
	defer back.Wait()
	defer onward.Close()
	onward.Write(packet)
	for {
		kind, n, err := in.Next()
		if err != nil {
			return
		}
		body, err := in.Read(n)
		if err != nil {
			return
		}
		onward.Write(frame(kind, string(change(kind, body))))
	}
}
