package proxy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// What a server says before it closes reaches the client, though the server
// takes no more of what the client is sending.
func TestSession_SaidBeforeItClosed(t *testing.T) {
	const fatal = "57P01 terminating connection due to administrator command"
	word := string(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: fatal[:5], Message: fatal[6:]}))
	for _, c := range []struct {
		name string
		kind byte
		asks string // before the client sends its message
	}{
		{"password", wire.Password, auth(3, "")},
		{"SASL", wire.Password, auth(10, "SCRAM-SHA-256\x00\x00")},
		{"bind", wire.Bind, opened(1)},
		{"function", wire.FunctionCall, opened(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			closed := make(chan struct{})
			addr := before(t, fakeBackend(t, func(p *peer) {
				defer close(closed)
				p.conn.Write([]byte(c.asks))
				p.in.Next() // and leaves the rest unread, so that the end is a reset
				p.conn.Write([]byte(word))
				p.conn.Close()
			}), nil)
			p := dialPeer(t, addr)
			p.startup(3<<16, "user\x00app\x00")
			for asked := 0; asked < len(c.asks); {
				_, body, err := p.read()
				if err != nil {
					t.Fatal(err)
				}
				asked += wire.HeaderLen + len(body)
			}
			whole := frame(c.kind, strings.Repeat("x", 60000))
			p.conn.Write(whole[:20000])
			<-closed
			for rest := range slices.Chunk(whole[20000:], 1000) { // each of which the proxy tries to pass on
				p.conn.Write(rest)
			}
			if got := p.told(t); got != fatal {
				t.Errorf("got %q, want %q", got, fatal)
			}
		})
	}
}
