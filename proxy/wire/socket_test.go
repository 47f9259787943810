package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// sockets are two ends of a connection of a kind.
func sockets(t *testing.T, network string) (a, b net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Over real sockets: what is written slower or faster than it is read arrives
// whole, a deadline interrupts and loses nothing, and an end is an end.
func TestReader_Sockets(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			a, b := sockets(t, network)
			r, w := wire.NewReader(b), wire.NewWriter(a)
			b.SetReadDeadline(time.Unix(1, 0))
			if _, _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(err.Error(), "read "+network) {
				t.Fatalf("got %v, want that a read met its deadline", err)
			}
			b.SetReadDeadline(time.Time{})
			sizes := []int{0, 1, 100, wire.DefaultBuffer, 5_000_000, 3}
			go func() {
				for _, n := range sizes {
					w.WriteMessage('d', message('d', n)[wire.HeaderLen:])
				}
				w.Flush()
				a.Close()
			}()
			for _, n := range sizes {
				if typ, body := next(t, r); typ != 'd' || body != n {
					t.Fatalf("got %q of %d bytes, want 'd' of %d", typ, body, n)
				}
				got, err := r.Read(n)
				if err != nil || !bytes.Equal(got, message('d', n)[wire.HeaderLen:]) {
					t.Fatalf("a body of %d bytes: got %d others, %v", n, len(got), err)
				}
			}
			if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want the end", err)
			}
		})
	}
}

// A Reader that waits and a Writer with nothing to write hold no buffer.
func TestReader_WaitsWithoutBuffer(t *testing.T) {
	const pairs = 50
	readers := make([]*wire.Reader, pairs)
	writers := make([]*wire.Writer, pairs)
	waiting := make([]net.Conn, pairs)
	done := make(chan error, pairs)
	before := inUse()
	for i := range pairs {
		a, b := sockets(t, "tcp")
		waiting[i], readers[i], writers[i] = b, wire.NewReader(b), wire.NewWriter(b)
		if _, err := a.Write(message('Q', 3000)); err != nil {
			t.Fatal(err)
		}
		next(t, readers[i])
		if err := readers[i].Forward(writers[i]); err != nil {
			t.Fatal(err)
		}
		if err := writers[i].Flush(); err != nil {
			t.Fatal(err)
		}
		b.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		go func() {
			_, _, err := readers[i].Next()
			done <- err
		}()
	}
	for range pairs {
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if got := (inUse() - before) / pairs; got > 4<<10 {
		t.Errorf("got %d bytes for an idle pair, want less than half a buffer", got)
	}
	runtime.KeepAlive(readers)
	runtime.KeepAlive(writers)
	runtime.KeepAlive(waiting)
}

// inUse is the memory in use; pools give theirs back at the second collection.
func inUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
