package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// An endless stream is the same bytes again and again.
type endless struct {
	data []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], e.data[e.at:])
		n, e.at = n+m, (e.at+m)%len(e.data)
	}
	return n, nil
}

// A trip is what a client sends again and again, and what PostgreSQL answers,
// the replies to a check before it included.
type trip struct {
	requests, replies []byte
	asked, answered   int // messages
}

func newTrip(requests, replies [][]byte) trip {
	return trip{bytes.Join(requests, nil), bytes.Join(replies, nil), len(requests), len(replies)}
}

// wheel returns a session between a client and a PostgreSQL that make the trip
// for ever, as a function that takes it once. That a check comes before it where
// the replies have one is the reply queue's to say.
func (w trip) wheel(t *testing.T, tagged bool) func() {
	t.Helper()
	client, peer := net.Pipe()
	t.Cleanup(func() { client.Close(); peer.Close() })
	server := NewServer(nil, nil)
	t.Cleanup(func() { server.Close() })
	s := newSession(server, client, 1)
	s.fromClient = wire.NewReader(&endless{data: w.requests})
	s.fromBackend = wire.NewServerReader(&endless{data: w.replies})
	s.toBackend, s.toClient = wire.NewWriter(io.Discard), wire.NewWriter(io.Discard)
	s.tagged, s.guarded, s.presented, s.installed = tagged, tagged, tagged, tagged
	s.own.confirmed = s.own.generation
	s.names.prepared = map[string]statement{
		"write": {known: true, class: sqlrewrite.MayWrite},
		"read":  {known: true, class: sqlrewrite.Read},
	}
	return func() {
		for range w.asked {
			typ, n, err := s.next()
			if err == nil {
				err = s.request(typ, n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range w.answered {
			if err := s.nextReply(); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.queue.Len(); n != 0 {
			t.Fatalf("%d replies are due after the trip, want 0", n)
		}
	}
}

// repliesOf makes messages of the given types.
func repliesOf(types string) (all [][]byte) {
	for _, typ := range []byte(types) {
		body := []byte(nil)
		switch typ {
		case wire.ReadyForQuery:
			body = []byte{wire.StatusIdle}
		case wire.DataRow:
			body = make([]byte, 30)
		case wire.CommandComplete:
			body = []byte("UPDATE 1\x00")
		}
		all = append(all, wire.Frame(nil, typ, body))
	}
	return all
}

// Once a session is under way, nothing that it relays and no check of a prepared
// statement leaves anything for the garbage collector.
func TestSession_Allocates(t *testing.T) {
	portal := func(name string) [][]byte {
		return [][]byte{
			wire.AppendBind(nil, "", name), wire.Frame(nil, wire.Describe, []byte("P\x00")),
			wire.AppendExecute(nil, ""), wire.AppendSync(nil),
		}
	}
	const update = "UPDATE pgbench_accounts SET abalance = 1 WHERE aid = 4711"
	parsed := append([][]byte{wire.AppendParse(nil, "", update)}, portal("")...)
	query := [][]byte{wire.AppendQuery(nil, update)}
	for _, c := range []struct {
		name     string
		tagged   bool
		requests [][]byte
		replies  string
		want     float64
	}{
		{"untagged, prepared", false, portal("write"), "2nCZ", 0},
		{"untagged, parsed", false, parsed, "12nCZ", 0},
		{"untagged, query", false, query, "CZ", 0},
		{"tagged, prepared write", true, portal("write"), "2n2DC3CZ", 0},
		{"tagged, prepared read", true, portal("read"), "2TDC2C3Z", 0},
		{"tagged, parsed", true, parsed, "12n2DC3CZ", 0},
		// The reply queue keeps what the new text consists of.
		{"tagged, query", true, query, "TDCCZ", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			take := newTrip(c.requests, repliesOf(c.replies)).wheel(t, c.tagged)
			if got := testing.AllocsPerRun(1000, take); got > c.want {
				t.Errorf("got %v allocations for a round trip, want %v", got, c.want)
			}
		})
	}
}
