package proxy

import (
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/console"
)

// Settings are what of a Server can change while it serves. What they say of a
// session's beginning counts for those that begin afterwards: an open session
// keeps its policy, its TLS and its place.
type Settings struct {
	Peers    []string // host:port of other proxies, asked about cancel keys that aren't known here
	Policies Policies
	TLS      ClientTLS
	Console  console.Settings // whose Console is the Server's

	LoginTimeout time.Duration // from accept to the first ReadyForQuery
	Sockets      Sockets

	// How long a client may ask nothing, outside and inside a transaction; 0
	// is for ever.
	ClientIdleTimeout, IdleTransactionTimeout time.Duration
	// MaxConnections is how many sessions are served at a time; 0 is no limit.
	// Those above a lower limit stay until they end.
	MaxConnections int
	// Lending says which locks sessions may take.
	Lending Lending
}

// settings returns the settings of this moment, which nobody changes any more.
func (s *Server) settings() *Settings {
	if now := s.reloaded.Load(); now != nil {
		return now
	}
	return &s.Settings
}

// Reload has the server go by other settings, while it serves. No session ends by
// it, but those that have been idle for too long by the new settings.
func (s *Server) Reload(to Settings) {
	s.reloaded.Store(&to)
	s.mu.Lock()
	close(s.resweep)
	s.resweep = make(chan struct{})
	s.mu.Unlock()
}

// reswept returns what is closed at the next Reload.
func (s *Server) reswept() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resweep
}
