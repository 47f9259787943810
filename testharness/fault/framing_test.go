package fault_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// encoded is messages of a client, as they are sent.
func encoded(t *testing.T, messages ...pgproto3.FrontendMessage) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// What is sent is told apart the same whether it comes at once or in bytes, and
// an end in the middle of a message loses nothing before it.
func TestFramer(t *testing.T) {
	startup := &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}}
	requests := encoded(t, &pgproto3.SSLRequest{}, startup, &pgproto3.Query{String: "SELECT 1"}, &pgproto3.Sync{})
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frames := "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x02\x01\x04\x00\x00\x00\x01ab" + "\x00\x00\x01\x00\x01\x00\x00\x00\x01c" + "\x00\x00\x00\x00\x01\x00\x00\x00\x01"
	there := func(f func() (there, back fault.Framer)) fault.Framer { to, _ := f(); return to }
	back := func(f func() (there, back fault.Framer)) fault.Framer { _, from := f(); return from }
	cases := []struct {
		name  string
		make  func() fault.Framer
		bytes string
		want  string
	}{
		{"PostgreSQL, there", func() fault.Framer { return there(fault.PostgreSQL) }, string(requests), "startup startup Q S"},
		{"PostgreSQL, back", func() fault.Framer { return back(fault.PostgreSQL) }, "S\x00\x00\x00\x06a\x00" + "Z\x00\x00\x00\x05I", "- Z"},
		{"HTTP/2, there", func() fault.Framer { return there(fault.HTTP2) }, preface + frames, "- - headers data -"},
		{"HTTP/2, back", func() fault.Framer { return back(fault.HTTP2) }, frames, "- headers data -"},
	}
	for _, c := range cases {
		for _, size := range []int{1, 7, len(c.bytes)} {
			t.Run(c.name, func(t *testing.T) {
				next, kept, got := c.make(), []byte{}, []string{}
				for piece := range slices.Chunk([]byte(c.bytes+"\x00"), size) { // and the beginning of another
					kept = append(kept, piece...)
					for {
						n, name := next(kept)
						if n == 0 {
							break
						}
						if name == "" {
							name = "-"
						}
						got, kept = append(got, name), kept[n:]
					}
				}
				if got := strings.Join(got, " "); got != c.want || string(kept) != "\x00" {
					t.Errorf("in pieces of %d: got %q and %q left, want %q", size, got, kept, c.want)
				}
			})
		}
	}
}

// A message isn't passed on when the link is cut ahead of it, and those before
// it are.
func TestLink_Before(t *testing.T) {
	addr, accepted := listen(t)
	link, err := fault.NewLink(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	var mu sync.Mutex
	var seen []string
	link.Watch(fault.PostgreSQL, func(there bool, name string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, name)
		if there && name == "S" {
			link.Set(fault.Cut)
			link.Set(fault.Open)
		}
	})
	near, err := net.Dial("tcp4", link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := <-accepted
	defer far.Close()
	startup := &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}}
	before := encoded(t, startup, &pgproto3.Query{String: "SELECT 1"})
	send(t, near, string(before)+string(encoded(t, &pgproto3.Sync{}, &pgproto3.Query{String: "never"})))
	got, _ := io.ReadAll(far) // to the reset
	if string(got) != string(before) {
		t.Errorf("got %q, want %q", got, before)
	}
	poll.Until(t, "three messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(seen, " ") == "startup Q S"
	})
	ended(t, near)
}
