package proxy_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
)

// lets takes whoever comes, as PostgreSQL does a role that it trusts.
func lets(p *peer) {
	p.conn.Write([]byte(auth(0, "") + "K\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x01" + "Z\x00\x00\x00\x05I"))
	io.Copy(io.Discard, p.conn)
}

// getsIn logs in as a client whose connection has waited for long enough.
func getsIn(t *testing.T, p *peer) {
	t.Helper()
	p.startup(3<<16, "user\x00app\x00")
	for {
		typ, _, err := p.read()
		if err != nil {
			t.Fatalf("a client that says who it is: got %v, want a session", err)
		}
		if typ == 'Z' {
			return
		}
	}
}

// Those who say nothing don't keep out those who say who they are: where there are
// too many, the one that has waited longest makes room.
func TestServer_Newcomers(t *testing.T) {
	var server *proxy.Server
	var log logged
	addr := before(t, fakeBackend(t, lets), func(s *proxy.Server) {
		server = s
		s.MaxNewcomers, s.NewcomerPatience = 3, 0
		log.by(s)
	})
	ssl := "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	silent := []*peer{dialPeer(t, addr), dialPeer(t, addr), dialPeer(t, addr)}
	for i, p := range silent {
		io.WriteString(p.conn, ssl) // the answer shows that it was taken
		if _, err := io.ReadFull(p.conn, make([]byte, 1)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	client := dialPeer(t, addr)
	getsIn(t, client)
	if got := silent[0].told(t); got != "end" {
		t.Errorf("the first: got %q, want the end", got)
	}
	for _, p := range silent[1:] {
		getsIn(t, p)
	}
	if got := samples.Of(t, server.Metrics.CrowdedOut)["newcomers_crowded_out_total"]; got != 1 {
		t.Errorf("crowded out: got %v, want 1", got)
	}
	poll.Until(t, "a line about it", func() bool { return log.line("said nothing for too long") != "" })
	// Sessions are no newcomers, whatever there are of them.
	for range 5 {
		getsIn(t, dialPeer(t, addr))
	}
	if got := server.Sessions(); got != 8 {
		t.Errorf("got %d sessions, want 8", got)
	}
}

// Many that come at once lose nothing by it: they wait for each other.
func TestServer_NewcomersWait(t *testing.T) {
	var server *proxy.Server
	addr := before(t, fakeBackend(t, lets), func(s *proxy.Server) {
		server = s
		s.MaxNewcomers, s.NewcomerPatience = 1, time.Hour
	})
	first, second := dialPeer(t, addr), dialPeer(t, addr)
	poll.Until(t, "the first is taken", func() bool { return server.Sessions() == 1 })
	second.startup(3<<16, "user\x00app\x00")
	getsIn(t, first)
	if typ, _, err := second.read(); err != nil || typ != 'R' {
		t.Errorf("the second: got %q, %v, want a session", typ, err)
	}
	if got := samples.Of(t, server.Metrics.CrowdedOut)["newcomers_crowded_out_total"]; got != 0 {
		t.Errorf("crowded out: got %v, want 0", got)
	}
	// One that waits doesn't keep the server from ending.
	dialPeer(t, addr)
	dialPeer(t, addr)
	poll.Until(t, "the third is taken", func() bool { return server.Sessions() == 3 })
	server.Close()
}

// A cancel request that knows a session's key stays until PostgreSQL has taken it;
// one that doesn't is a newcomer's.
func TestServer_NewcomersCancel(t *testing.T) {
	s := newStack(t, 0)
	g := newGate(t, s.pg.Addr())
	var server *proxy.Server
	addr := s.addProxy(g.addr, func(p *proxy.Server) { server, p.MaxNewcomers, p.NewcomerPatience = p, 1, 0 })
	conn := s.session(0, "", 0)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep(600)")
		done <- err
	}()
	s.running("pg_sleep")
	request := dialPeer(t, addr)
	request.conn.Write(cancelRequest(cancelKey(conn)))
	<-g.arrived
	for range 3 {
		p := dialPeer(t, addr)
		io.WriteString(p.conn, "\x00\x00\x00\x08\x04\xd2\x16\x2f")
		if _, err := io.ReadFull(p.conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := samples.Of(t, server.Metrics.CrowdedOut)["newcomers_crowded_out_total"]; got != 2 {
		t.Errorf("crowded out: got %v, want 2: the cancel request is none of them", got)
	}
	g.open()
	if err := <-done; code(err) != "57014" {
		t.Errorf("got %v, want 57014", err)
	}
	if got, err := io.ReadAll(request.conn); err != nil || !bytes.Equal(got, nil) {
		t.Errorf("got %q, %v, want the end once it was taken", got, err)
	}
}
