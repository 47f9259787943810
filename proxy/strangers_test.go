package proxy_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
)

// head is what a message of a length begins with.
func head(t byte, length uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte{t}, length))
}

// padded is a startup packet of a length.
func padded(length int) string {
	const most = "user\x00app\x00application_name\x00"
	value := strings.Repeat("x", length-8-len(most)-2)
	return string(binary.BigEndian.AppendUint32(nil, uint32(length))) + "\x00\x03\x00\x00" + most + value + "\x00\x00"
}

// What somebody without a login sends is bounded by length before it is waited for
// or kept: the client never sends what it announces, and yet it ends at once.
func TestServer_StrangersLimits(t *testing.T) {
	ca := certs.New(t)
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	const gss = "\x00\x00\x00\x08\x04\xd2\x16\x30"
	const good = "\x00\x00\x00\x12\x00\x03\x00\x00user\x00app\x00\x00"
	for _, c := range []struct {
		name, says string
		asks       string // what PostgreSQL asks for; "" lets the client in
		want       string
	}{
		{"the longest startup packet", padded(wire.MaxStartupLength), "", "in"},
		{"one byte more", "\x00\x00\x27\x15\x00\x03\x00\x00", "", "end"},
		{"2 GB", "\x7f\xff\xff\xff\x00\x03\x00\x00", "", "end"},
		{"the shortest one", "\x00\x00\x00\x07", "", "end"},
		{"a cancel request of 10,004 bytes", "\x00\x00\x27\x14\x04\xd2\x16\x2e" + strings.Repeat("x", 9996), "", "end"},
		{"a cancel request of one more", "\x00\x00\x27\x15\x04\xd2\x16\x2e", "", "end"},
		{"bytes behind a request for encryption", gss + "x", "", "N08P01 received unencrypted data after GSSAPI encryption request"},
		{"a handshake of 16 MB", "\x16\x03\x01\x00\x04\x01\xff\xff\xff", "", "alert"},
		{"a handshake record of 60 kB", "\x16\x03\x01\xf0\x00", "", "alert"},
		{"the longest password", good + head('p', wire.MaxAuthLength) + strings.Repeat("x", wire.MaxAuthLength-4), auth(3, ""), "in"},
		{"a longer password", good + head('p', wire.MaxAuthLength+1), auth(3, ""), "end"},
		{"2 GB for a password", good + head('p', 0x7fffffff), auth(3, ""), "end"},
		{"a longer MD5 answer", good + head('p', wire.MaxAuthLength+1), auth(5, "salt"), "end"},
		{"a longer SASL message", good + head('p', wire.MaxAuthLength+1), auth(10, "SCRAM-SHA-256\x00\x00"), `28P01 password authentication failed for user "app"`},
		{"a query in place of a password", good + head('Q', 0x3fffffff), auth(3, ""), "08P01 expected password response, got message type 81"},
	} {
		t.Run(c.name, func(t *testing.T) {
			upstream := fakeBackend(t, func(p *peer) {
				if c.asks != "" {
					p.conn.Write([]byte(c.asks))
					if _, _, err := p.read(); err != nil {
						return
					}
				}
				lets(p)
			})
			addr := before(t, upstream, func(s *proxy.Server) {
				s.LoginTimeout = time.Hour // it isn't what ends them
				s.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
			})
			p := dialPeer(t, addr)
			if _, err := io.WriteString(p.conn, c.says); err != nil {
				t.Fatal(err)
			}
			if got := p.comes(t, c.want); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// comes is what becomes of a client: in, or what it is told. What it is asked for
// is passed over.
func (p *peer) comes(t *testing.T, want string) string {
	t.Helper()
	if want == "alert" {
		said, err := io.ReadAll(p.conn)
		if err != nil || len(said) < 5 || said[0] != 0x15 {
			t.Errorf("got %q, %v, want TLS's own refusal and the end", said, err)
		}
		return want
	}
	before := ""
	if strings.HasPrefix(want, "N") {
		b := make([]byte, 1)
		if _, err := io.ReadFull(p.conn, b); err != nil {
			t.Fatal(err)
		}
		before = string(b)
	}
	for {
		typ, _, err := p.read()
		var r *reported
		switch {
		case errors.As(err, &r):
			return before + r.Error()
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Error("it waits for what was announced")
			return before
		case err != nil:
			return before + "end"
		case typ == wire.ReadyForQuery:
			return "in"
		}
	}
}
