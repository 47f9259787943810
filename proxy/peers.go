package proxy

import (
	"context"
	"crypto/tls"
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
	if len(s.Peers) == 0 || len(key) < minKeyData || len(key) > maxKeyData {
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
	var asked sync.WaitGroup
	for _, addr := range s.peerAddresses(ctx) {
		asked.Go(func() { s.askPeer(ctx, addr, key) })
	}
	asked.Wait()
}

// peerTimeout leaves a peer the time to deliver, after it was found.
func (s *Server) peerTimeout() time.Duration { return s.CancelTimeout + 2*time.Second }

// peerAddresses resolves the peers' names, each of which may stand for several.
func (s *Server) peerAddresses(ctx context.Context) []string {
	found := make([][]string, len(s.Peers))
	var resolved sync.WaitGroup
	for i, peer := range s.Peers {
		resolved.Go(func() {
			host, port, err := net.SplitHostPort(peer)
			var addrs []string
			if err == nil {
				addrs, err = net.DefaultResolver.LookupHost(ctx, host)
			}
			if err != nil {
				s.Logger.Warn("look up cancel peer", "peer", peer, "error", err)
			}
			for _, addr := range addrs {
				found[i] = append(found[i], net.JoinHostPort(addr, port))
			}
		})
	}
	resolved.Wait()
	var all []string
	seen := map[string]bool{}
	for _, addrs := range found {
		for _, addr := range addrs {
			if !seen[addr] && len(all) < maxPeers {
				seen[addr] = true
				all = append(all, addr)
			}
		}
	}
	return all
}

// askPeer hands a cancel request to one peer: encrypted if this proxy encrypts
// for its clients and the peer does too, else plain, as clients' own are.
func (s *Server) askPeer(ctx context.Context, addr string, key []byte) {
	conn, err := s.dialPeer(ctx, addr)
	if err == nil {
		err = handCancel(ctx, conn, wire.CodePeerCancel, key)
	}
	if err != nil {
		s.Logger.Warn("hand cancel request to peer", "peer", addr, "error", err)
	}
}

func (s *Server) dialPeer(ctx context.Context, addr string) (net.Conn, error) {
	e := Endpoint{Network: "tcp", Address: addr}
	if s.TLS.Mode != TLSDisable {
		// A peer is dialled by an address that its certificate needn't name. The
		// encryption is against those who listen: the key lets them do no more
		// than cancel a statement.
		e.TLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
		if conn, err := e.connect(ctx, s.peerTimeout()); err == nil {
			return conn, nil
		}
		e.TLS = nil
	}
	return e.connect(ctx, s.peerTimeout())
}
