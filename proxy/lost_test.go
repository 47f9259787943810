package proxy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// An untagged session whose server sends a reply that nothing asked for goes on
// for ever, since nothing of it is hidden.
func TestSession_LostReplies(t *testing.T) {
	const syncs = 5000 // more than the replies that a session may be owed
	addr := before(t, fakeBackend(t, func(p *peer) {
		p.conn.Write([]byte(opened(1) + string(frame('C', "SURPRISE\x00"))))
		for range syncs {
			if _, _, err := p.read(); err != nil {
				return
			}
			p.conn.Write([]byte("Z\x00\x00\x00\x05I"))
		}
	}), nil)
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00app\x00")
	for ready := 0; ready <= syncs; {
		kind, _, err := p.read()
		if err != nil {
			t.Fatalf("after %d replies: %v", ready, err)
		}
		if kind == wire.ReadyForQuery {
			ready++
			p.conn.Write(frame('S', ""))
		}
	}
}

// It ends as any other when its client is silent, yet not while it waits.
func TestSession_LostRepliesIdle(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	addr := before(t, fakeBackend(t, func(p *peer) {
		p.conn.Write([]byte(opened(1) + string(frame('C', "SURPRISE\x00"))))
		if _, _, err := p.read(); err != nil {
			return
		}
		close(asked)
		<-answer
		p.conn.Write([]byte("Z\x00\x00\x00\x05I"))
		p.read()
	}), func(s *proxy.Server) { s.ClientIdleTimeout = 100 * time.Millisecond })
	p := dialPeer(t, addr)
	p.startup(3<<16, "user\x00app\x00")
	for kind := byte(0); kind != wire.CommandComplete; {
		var err error
		if kind, _, err = p.read(); err != nil {
			t.Fatal(err)
		}
	}
	p.conn.Write(frame('S', ""))
	<-asked
	p.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if kind, body, err := p.read(); err == nil {
		t.Fatalf("while it waits: got %q %q", kind, body)
	}
	p.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	close(answer)
	if kind, _, err := p.read(); err != nil || kind != wire.ReadyForQuery {
		t.Fatalf("got %q, %v, want the answer", kind, err)
	}
	if got, want := p.told(t), "57P05"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %s", got, want)
	}
}
