package queue_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/queue"
)

// announce pushes a prepared statement with its hidden check.
func announce(q *queue.Queue) {
	for _, k := range [...]queue.Kind{queue.Bind, queue.Execute, queue.Close} {
		q.Push(queue.Entry{Kind: k, Purpose: queue.Early})
	}
	for _, k := range [...]queue.Kind{queue.Bind, queue.Execute, queue.Sync} {
		q.Push(queue.Entry{Kind: k})
	}
}

// trip announces one and gives the replies to the oldest.
func trip(q *queue.Queue) error {
	announce(q)
	for _, r := range []byte("2DC32DDDCZ") {
		if _, err := q.Reply(r); err != nil {
			return err
		}
	}
	return nil
}

func BenchmarkQueue(b *testing.B) {
	for name, ahead := range map[string]int{"empty": 0, "pipelined=1000": 1000} {
		b.Run(name, func(b *testing.B) {
			var q queue.Queue
			for range ahead {
				announce(&q)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := trip(&q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Pushing and replying allocates nothing once the ring has its size.
func TestQueue_Allocates(t *testing.T) {
	var q queue.Queue
	got := testing.AllocsPerRun(100, func() {
		if err := trip(&q); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations for a round trip, want 0", got)
	}
}
