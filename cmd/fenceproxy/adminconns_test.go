package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// Strangers who hold connections open, saying nothing, keep nobody away, and take no more
// than their share; requests that are being answered are left to end.
func TestAdminConns(t *testing.T) {
	const most = 8
	conns := newAdminConns(most)
	answer := make(chan struct{})
	server := &http.Server{ConnState: conns.changed, ReadHeaderTimeout: poll.Deadline, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-answer
		}
		fmt.Fprint(w, "ok")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		server.Close()
		<-served
	}()
	dial := func(ask string) net.Conn {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(poll.Deadline))
		fmt.Fprint(conn, ask)
		return conn
	}
	opened := func() int {
		conns.mu.Lock()
		defer conns.mu.Unlock()
		return len(conns.open)
	}
	slow := dial("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	poll.Until(t, "the slow one is being answered", func() bool {
		conns.mu.Lock()
		defer conns.mu.Unlock()
		return len(conns.open) == 1 && conns.silent.Len() == 0
	})
	for range 5 * most {
		dial("")
	}
	poll.Until(t, "so many connections", func() bool { return opened() == most })
	probe := dial("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	if line, err := bufio.NewReader(probe).ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("a probe: got %q, %v", line, err)
	}
	close(answer)
	if line, err := bufio.NewReader(slow).ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("the one that was being answered: got %q, %v", line, err)
	}
	if n := opened(); n > most {
		t.Errorf("got %d connections, want %d at most", n, most)
	}
}
