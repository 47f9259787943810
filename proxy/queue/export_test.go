package queue

import "fmt"

// Audit compares what the queue keeps count of with a recount.
func (q *Queue) Audit() error {
	ready := 0
	for i := range q.count {
		if q.at(i).Kind.Ready() {
			ready++
		}
	}
	switch {
	case ready != q.ready:
		return fmt.Errorf("%d entries end with a ReadyForQuery, %d are counted", ready, q.ready)
	case q.count > len(q.ring), q.count < 0:
		return fmt.Errorf("%d entries in a ring of %d", q.count, len(q.ring))
	case q.skipping && q.count > 0:
		return fmt.Errorf("%d entries are due while the server discards everything", q.count)
	case q.count > 0 && q.at(0).Kind.marker():
		return fmt.Errorf("a %v is at the head", q.at(0).Kind)
	}
	for i := q.count; i < len(q.ring); i++ {
		if e := q.at(i); e.Kind != 0 || e.Purpose != 0 || e.Plan != nil || e.Shift != nil {
			return fmt.Errorf("a free slot holds on to a %v", e.Kind)
		}
	}
	return nil
}
