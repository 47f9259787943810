package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A pipeListener accepts what is put into it.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// A script is a client that says its bytes, half-closes, and writes down what
// it hears until it is hung up on.
type script struct {
	says  *bytes.Reader
	heard bytes.Buffer
	once  sync.Once
	hung  chan struct{}
}

func (c *script) Read(p []byte) (int, error)       { return c.says.Read(p) }
func (c *script) Write(p []byte) (int, error)      { return c.heard.Write(p) }
func (c *script) Close() error                     { c.once.Do(func() { close(c.hung) }); return nil }
func (c *script) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "script", Net: "unix"} }
func (c *script) RemoteAddr() net.Addr             { return c.LocalAddr() }
func (c *script) SetDeadline(time.Time) error      { return nil }
func (c *script) SetReadDeadline(time.Time) error  { return nil }
func (c *script) SetWriteDeadline(time.Time) error { return nil }

// A witness is a server that takes any session of version 3 and no other,
// writes down what each begins with, and never answers a request.
type witness struct {
	mu      sync.Mutex
	packets [][]byte
}

func (r *witness) talk(p *peer) {
	packet, err := p.in.ReadPacket(wire.MaxStartupLength)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.packets = append(r.packets, packet)
	r.mu.Unlock()
	if binary.BigEndian.Uint16(packet[4:]) != 3 {
		p.conn.Write(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: "0A000", Message: "unsupported frontend protocol"}))
		return
	}
	p.conn.Write([]byte(auth(0, "") + "K\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x01" + "Z\x00\x00\x00\x05I"))
	io.Copy(io.Discard, p.conn)
}

// FuzzStartup begins a session with any bytes. The client hears one byte for
// each request for encryption and well-formed messages after that, the server
// sees a startup packet that the client sent, whole, and no replication, and
// the session ends with the client.
func FuzzStartup(f *testing.F) {
	const ssl, gss = "\x00\x00\x00\x08\x04\xd2\x16\x2f", "\x00\x00\x00\x08\x04\xd2\x16\x30"
	packet := func(version uint32, params string) string {
		b := binary.BigEndian.AppendUint32(nil, uint32(9+len(params)))
		return string(append(append(binary.BigEndian.AppendUint32(b, version), params...), 0))
	}
	good := packet(3<<16, "user\x00app\x00database\x00d\x00options\x00-c work_mem=1MB\x00")
	for _, seed := range []string{
		good, ssl, gss, ssl + good, gss + ssl + good, good + "Q\x00\x00\x00\x0dSELECT 1\x00", good + "X\x00\x00\x00\x04",
		packet(3<<16|2, "user\x00a\x00_pq_.x\x001\x00"), packet(3<<16|9999, "_pq_.test_protocol_negotiation\x00\x00"), packet(2<<16, ""), packet(4<<16, "user\x00a\x00"),
		packet(3<<16, "user\x00a\x00replication\x00true\x00"), packet(3<<16, "user\x00a\x00replication\x00off\x00replication\x00Y\x00"), packet(3<<16, "replication\x00bogus\x00"),
		"\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x01", "\x00\x00\x00\x08\x04\xd2\x16\x2e",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x07", "\xff\xff\xff\xff", "\x00\x00\x27\x15", "", "\x00",
		packet(3<<16, "user"), packet(3<<16, "user\x00a\x00") + "\x00", good[:len(good)-1],
	} {
		f.Add([]byte(seed))
	}
	var seen witness
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed above
			}
			go func() {
				defer conn.Close()
				seen.talk(newPeer(conn))
			}()
		}
	}()
	server := proxy.NewServer(proxy.TCP(ln.Addr().String()), nil)
	clients := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	go server.Serve(clients)
	defer server.Close()
	f.Fuzz(func(t *testing.T, said []byte) {
		if mayBeTagged(said) {
			return // there is no database to claim in
		}
		client := &script{says: bytes.NewReader(said), hung: make(chan struct{})}
		clients.conns <- client
		select {
		case <-client.hung:
			wellFormed(t, client.heard.Bytes())
		case <-time.After(20 * time.Second):
			t.Fatal("the session doesn't end")
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for _, p := range seen.packets {
			if !bytes.Contains(said, p) {
				t.Errorf("the server saw %q of %q", p, said)
			}
			if params, err := wire.ReadStartup(p); err == nil && strings.EqualFold(params["replication"], "true") {
				t.Errorf("replication was passed on: %q", p)
			}
		}
		seen.packets = nil
	})
}

// mayBeTagged reports whether a tag could be in a startup packet.
func mayBeTagged(said []byte) bool {
	return bytes.Contains(bytes.ToLower(bytes.ReplaceAll(said, []byte(`\`), nil)), []byte("fence"))
}

// wellFormed takes what a client hears apart.
func wellFormed(t *testing.T, heard []byte) {
	t.Helper()
	rest := bytes.TrimLeft(heard, "N")
	if len(heard)-len(rest) > 2 {
		t.Errorf("answered more than two requests for encryption: %q", heard)
	}
	in := wire.NewReader(bytes.NewReader(rest))
	fatal := false
	for {
		typ, n, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if fatal {
			t.Errorf("something came behind a FATAL: %q", heard)
		}
		if err != nil || !strings.ContainsRune("RSKZENv", rune(typ)) {
			t.Fatalf("heard %q: %v", heard, err)
		}
		if _, err := in.Read(n); err != nil {
			t.Fatalf("heard %q: %v", heard, err)
		}
		fatal = typ == wire.ErrorResponse
	}
}
