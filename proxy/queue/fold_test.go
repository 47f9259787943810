package queue_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
)

// A client that goes on sending Syncs while a COPY waits for data costs no more
// memory, and each of them is still known when the COPY fails.
func TestQueue_Fold(t *testing.T) {
	const syncs = 1000
	for _, c := range []struct {
		name    string
		end     byte
		answers int // ReadyForQuery that may come after the end
	}{
		{"done", 'C', 0},
		{"failed before it has read any", 'E', syncs},
		{"failed after it has read all", 'E', 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q queue.Queue
			q.Push(queue.Entry{Kind: queue.Execute})
			reply(t, &q, 'G')
			for range syncs {
				q.Push(queue.Entry{Kind: queue.CopyData})
				q.Push(queue.Entry{Kind: queue.Sync})
				if q.Len() > 10 {
					q.Fold()
				}
				if !q.Starving() {
					t.Fatal("the COPY doesn't wait for data any more")
				}
			}
			if q.Len() > 10 {
				t.Errorf("got %d entries, want at most 10", q.Len())
			}
			q.Push(queue.Entry{Kind: queue.CopyEnd})
			reply(t, &q, c.end)
			for range c.answers {
				reply(t, &q, 'Z')
			}
			q.Push(queue.Entry{Kind: queue.Sync})
			reply(t, &q, 'Z')
			q.Push(queue.Entry{Kind: queue.Parse})
			reply(t, &q, '1')
		})
	}
}

func reply(t *testing.T, q *queue.Queue, typ byte) {
	t.Helper()
	if _, err := q.Reply(typ); err != nil {
		t.Fatal(err)
	}
}
