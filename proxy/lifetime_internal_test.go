package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A request that comes just when the time is up is taken, from a client that is
// owed the answer of an eviction too.
func TestSession_WaitedJustInTime(t *testing.T) {
	for name, end := range map[string]*ending{
		"evicted":     {err: &fencing.Error{Code: fencing.CodeEvicted}},
		"not evicted": nil,
	} {
		t.Run(name, func(t *testing.T) {
			client, peer := net.Pipe()
			defer client.Close()
			defer peer.Close()
			s := newSession(&Server{Settings: Settings{ClientIdleTimeout: time.Second}}, client, 1)
			s.over, s.ending = end != nil, end
			if err := s.wait(); err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			s.sweep(now)
			s.sweep(now.Add(time.Second))
			if s.idle.expired != errIdle {
				t.Fatalf("expired: got %v, want %v", s.idle.expired, errIdle)
			}
			s.waited(true)
			go peer.Write([]byte("Q"))
			if _, err := io.ReadFull(s.client, make([]byte, 1)); err != nil {
				t.Errorf("the next read: %v", err)
			}
			if err := s.wait(); err != nil {
				t.Errorf("the next wait: %v", err)
			}
		})
	}
}
