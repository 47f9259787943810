package fault_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// moment is how long a test looks on while nothing must come.
const moment = 50 * time.Millisecond

// A line is a connection over a link, both ends in the test's hands.
type line struct {
	t          *testing.T
	link       *fault.Link
	near, far  net.Conn
	farTargets chan net.Conn
}

func listen(t *testing.T) (addr string, accepted chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted = make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	return l.Addr().String(), accepted
}

func open(t *testing.T) *line {
	t.Helper()
	addr, accepted := listen(t)
	link, err := fault.NewLink(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	l := &line{t: t, link: link, farTargets: accepted}
	l.near = l.dial()
	l.far = <-accepted
	t.Cleanup(func() { l.near.Close(); l.far.Close() })
	return l
}

func (l *line) dial() net.Conn {
	l.t.Helper()
	conn, err := net.Dial("tcp4", l.link.Addr())
	if err != nil {
		l.t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

// hears wants text to arrive.
func hears(t *testing.T, from net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_ = from.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// hearsNothing wants nothing to arrive for a moment.
func hearsNothing(t *testing.T, from net.Conn) {
	t.Helper()
	_ = from.SetReadDeadline(time.Now().Add(moment))
	if n, err := from.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want nothing", n, err)
	}
}

// ended wants the connection to be broken.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want a broken connection", err)
	}
}

// refuses wants a connection to be reset, as early as it may be.
func refuses(t *testing.T, link *fault.Link) {
	t.Helper()
	conn, err := net.Dial("tcp4", link.Addr())
	if err != nil {
		return
	}
	defer conn.Close()
	ended(t, conn)
}

func TestLink_Open(t *testing.T) {
	l := open(t)
	send(t, l.near, "there")
	hears(t, l.far, "there")
	send(t, l.far, "back")
	hears(t, l.near, "back")
	// One direction's end leaves the other one open.
	if err := l.near.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	ended(t, l.far)
	send(t, l.far, "still")
	hears(t, l.near, "still")
}

func TestLink_Cut(t *testing.T) {
	l := open(t)
	l.link.Set(fault.Cut)
	ended(t, l.near)
	ended(t, l.far)
	refuses(t, l.link)
	l.link.Set(fault.Open)
	again := l.dial()
	defer again.Close()
	send(t, again, "again")
	far := <-l.farTargets
	defer far.Close()
	hears(t, far, "again")
}

// A silent link keeps what is sent, and its connections, until it is healed.
func TestLink_Silent(t *testing.T) {
	cases := []struct {
		mode        fault.Mode
		there, back bool // whether that direction goes on
	}{
		{fault.Silent, false, false}, {fault.SilentThere, false, true}, {fault.SilentBack, true, false},
	}
	for _, c := range cases {
		t.Run(c.mode.String(), func(t *testing.T) {
			l := open(t)
			l.link.Set(c.mode)
			send(t, l.near, "there")
			send(t, l.far, "back")
			for _, d := range []struct {
				passes bool
				conn   net.Conn
				text   string
			}{{c.there, l.far, "there"}, {c.back, l.near, "back"}} {
				if d.passes {
					hears(t, d.conn, d.text)
					continue
				}
				hearsNothing(t, d.conn)
			}
			l.link.Set(fault.Open)
			if !c.there {
				hears(t, l.far, "there")
			}
			if !c.back {
				hears(t, l.near, "back")
			}
		})
	}
}

func TestLink_SilentThenCut(t *testing.T) {
	l := open(t)
	l.link.Set(fault.Silent)
	send(t, l.near, "lost")
	hearsNothing(t, l.far)
	l.link.Set(fault.Cut)
	ended(t, l.far)
}

func TestLink_Slow(t *testing.T) {
	l := open(t)
	l.link.Delay = 100 * time.Millisecond
	l.link.Set(fault.Slow)
	began := time.Now()
	send(t, l.near, "late")
	hears(t, l.far, "late")
	if took := time.Since(began); took < l.link.Delay {
		t.Errorf("got it after %v, want no less than %v", took, l.link.Delay)
	}
}

func TestLink_SetTarget(t *testing.T) {
	l := open(t)
	addr, accepted := listen(t)
	l.link.SetTarget(addr)
	conn := l.dial()
	defer conn.Close()
	send(t, conn, "new")
	far := <-accepted
	defer far.Close()
	hears(t, far, "new")
	// What is open stays where it is.
	send(t, l.near, "old")
	hears(t, l.far, "old")
}

func TestLink_NobodyThere(t *testing.T) {
	link, err := fault.NewLink("127.0.0.1:1") // no server has this port
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	refuses(t, link)
}

func TestLink_Close(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link, err := fault.NewLink(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	link.Set(fault.Silent)
	conn, err := net.Dial("tcp4", link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	send(t, conn, "stuck")
	link.Close()
	link.Close()
	ended(t, conn)
	conn.Close()
}

func TestMode_Reversed(t *testing.T) {
	for _, c := range []struct{ mode, want fault.Mode }{
		{fault.SilentThere, fault.SilentBack}, {fault.SilentBack, fault.SilentThere}, {fault.Silent, fault.Silent}, {fault.Cut, fault.Cut},
	} {
		if got := c.mode.Reversed(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.mode, got, c.want)
		}
	}
}
