package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// The bounds of what one cancel request with an unknown key can cause.
const (
	maxPeering = 16 // requests that peers are asked about at the same time
	maxPeers   = 64 // addresses that are asked about one
)

// cancelAtPeers hands a cancel request to all peers at once, for whichever has
// the session, and waits for them. They pass it on to nobody, so that a proxy
// may be its own peer. Clients' keys are PostgreSQL's own: its process id is
// that of one backend only, so that at most one peer has the session.
func (s *Server) cancelAtPeers(key []byte) {
	peers := s.settings().Peers
	if len(peers) == 0 || len(key) < minKeyData || len(key) > maxKeyData {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.peerTimeout())
	defer cancel()
	select {
	case s.peering <- struct{}{}:
		defer func() { <-s.peering }()
	case <-ctx.Done():
		s.Logger.Warn("cancel request dropped: too many that no session of this proxy has the key of")
		return
	}
	asked := peersAsked{addrs: map[string]bool{}}
	for _, peer := range peers {
		asked.running.Go(func() { s.askPeers(ctx, &asked, peer, key) })
	}
	asked.running.Wait()
}

// peersAsked are the addresses that were asked about one cancel request, each
// once whatever names it has.
type peersAsked struct {
	running sync.WaitGroup
	mu      sync.Mutex
	addrs   map[string]bool
}

// add reports whether an address is still to be asked.
func (p *peersAsked) add(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addrs[addr] || len(p.addrs) >= maxPeers {
		return false
	}
	p.addrs[addr] = true
	return true
}

// peerTimeout leaves a peer the time to deliver, after it was found.
func (s *Server) peerTimeout() time.Duration { return s.CancelTimeout + 2*time.Second }

// askPeers asks what one name stands for, without waiting for other names.
func (s *Server) askPeers(ctx context.Context, asked *peersAsked, peer string, key []byte) {
	host, port, err := net.SplitHostPort(peer)
	var addrs []string
	if err == nil {
		addrs, err = net.DefaultResolver.LookupHost(ctx, host)
	}
	if err != nil {
		s.Logger.Warn("look up cancel peer", "peer", peer, "error", err)
		return
	}
	for _, addr := range addrs {
		addr = net.JoinHostPort(addr, port)
		if asked.add(addr) {
			asked.running.Go(func() { s.askPeer(ctx, addr, key) })
		}
	}
}

// askPeer hands a cancel request to one peer: encrypted if this proxy encrypts
// for its clients and the peer does too, else plain, as clients' own are.
func (s *Server) askPeer(ctx context.Context, addr string, key []byte) {
	e := Endpoint{Network: "tcp", Address: addr, TLS: s.peerTLS()}
	err := s.handPeer(ctx, e, key)
	if err != nil && e.TLS != nil && ctx.Err() == nil {
		e.TLS = nil
		err = s.handPeer(ctx, e, key)
	}
	if err != nil {
		s.Logger.Warn("hand cancel request to peer", "peer", addr, "error", err)
	}
}

func (s *Server) handPeer(ctx context.Context, e Endpoint, key []byte) error {
	conn, err := e.connect(ctx, s.peerTimeout())
	if err != nil {
		return err
	}
	end, err := handCancel(ctx, conn, wire.CodePeerCancel, key)
	if err == nil && e.TLS != nil && end != nil && !errors.Is(end, io.EOF) && !errors.Is(end, io.ErrUnexpectedEOF) {
		// In TLS 1.3 a client takes the handshake for done before the server has
		// looked at its certificate.
		return end
	}
	return err
}

// peerTLS is how a peer is spoken to, nil for plain. It is dialled by an address that
// its certificate needn't name: the encryption is against those who listen, whom the
// key lets do no more than cancel a statement. Where peers want to see a certificate
// this proxy shows its own.
func (s *Server) peerTLS() *tls.Config {
	now := s.settings().TLS
	if now.Mode == TLSDisable {
		return nil
	}
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, Certificates: now.Config().Certificates}
}
