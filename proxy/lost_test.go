package proxy_test

import (
	"testing"

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
