package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// A bounded is a server whose connections adminConns bounds.
type bounded struct {
	*adminConns
	t    *testing.T
	addr string
}

// newBounded starts one. /slow waits for release, /echo answers with what stands behind
// the request.
func newBounded(t *testing.T, most int, within time.Duration) (b *bounded, release func()) {
	t.Helper()
	b = &bounded{newAdminConns(most, within), t, ""}
	answer := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: poll.Deadline, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-answer
		case "/echo":
			_, _ = io.Copy(w, r.Body)
		}
		fmt.Fprint(w, "ok")
	})}
	b.watch(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return b, func() { close(answer) }
}

func (b *bounded) dial(ask string) net.Conn {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(poll.Deadline))
	fmt.Fprint(conn, ask)
	return conn
}

// counts are how many there are, and how many of them are being answered.
func (b *bounded) counts() (open, busy int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open), b.busy.Len()
}

func (b *bounded) probe() {
	b.t.Helper()
	b.answers("a probe", b.dial("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"))
}

func (b *bounded) answers(what string, conn net.Conn) {
	b.t.Helper()
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
		b.t.Errorf("%s: got %q, %v", what, line, err)
	}
}

// Strangers who hold connections open, saying nothing, keep nobody away, and take no more
// than their share; requests that are being answered are left to end.
func TestAdminConns(t *testing.T) {
	const most = 8
	b, release := newBounded(t, most, poll.Deadline)
	slow := b.dial("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	poll.Until(t, "the slow one is being answered", func() bool {
		open, busy := b.counts()
		return open == 1 && busy == 1
	})
	for range 5 * most {
		b.dial("")
	}
	poll.Until(t, "so many connections", func() bool { open, _ := b.counts(); return open == most })
	b.probe()
	release()
	b.answers("the one that was being answered", slow)
	if n, _ := b.counts(); n > most {
		t.Errorf("got %d connections, want %d at most", n, most)
	}
}

// Who asks and then holds something back keeps nobody away either.
func TestAdminConns_HeldBack(t *testing.T) {
	for name, ask := range map[string]string{
		"a form":         "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\nto",
		"of no use":      "GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n",
		"in chunks":      "GET /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"when asked for": "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			const most = 8
			b, _ := newBounded(t, most, poll.Deadline)
			for range 3 * most {
				b.dial(ask)
			}
			poll.Until(t, "all of them wait", func() bool { open, busy := b.counts(); return open == most && busy == 0 })
			for range most {
				b.probe()
			}
		})
	}
}

// What takes long to answer is spared when there is nothing else to spare.
func TestAdminConns_Unread(t *testing.T) {
	const most = 4
	b, release := newBounded(t, most, 0)
	defer release()
	for range most {
		b.dial("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	poll.Until(t, "all are busy", func() bool { _, busy := b.counts(); return busy == most })
	b.probe()
}

// Until then they are left to end, and who comes is turned away.
func TestAdminConns_Busy(t *testing.T) {
	const most = 4
	b, release := newBounded(t, most, poll.Deadline)
	var busy []net.Conn
	for range most {
		busy = append(busy, b.dial("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n"))
	}
	poll.Until(t, "all are busy", func() bool { _, busy := b.counts(); return busy == most })
	if line, err := bufio.NewReader(b.dial("")).ReadString('\n'); err == nil {
		t.Errorf("one too many: got %q, want its end", line)
	}
	release()
	for _, conn := range busy {
		b.answers("one that was there before", conn)
	}
}

// What stands behind a request arrives, up to 4 kB, and the connection goes on.
func TestAdminConns_Bodies(t *testing.T) {
	b, _ := newBounded(t, 4, poll.Deadline)
	for n, want := range map[int]int{0: 200, 1: 200, maxAdminBody: 200, maxAdminBody + 1: 413} {
		text := strings.Repeat("x", n)
		resp, err := http.Post("http://"+b.addr+"/echo", "text/plain", strings.NewReader(text))
		if err != nil {
			t.Errorf("%d bytes: %v", n, err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || want == 200 && string(got) != text+"ok" {
			t.Errorf("%d bytes: got %d, %d bytes, %v, want %d", n, resp.StatusCode, len(got), err, want)
		}
	}
	conn := b.dial(strings.Repeat("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", 3))
	r := bufio.NewReader(conn)
	for range 3 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "abok" {
			t.Errorf("one of three: got %q, %v", got, err)
		}
	}
}
