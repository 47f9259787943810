package queue

func (q *Queue) at(i int) *Entry { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

// pop takes the head out, and the markers behind it, which wait for nothing.
func (q *Queue) pop() *Entry {
	last := q.take()
	for q.count > 0 && q.at(0).Kind.marker() {
		q.take()
	}
	q.last = last
	return &q.last
}

func (q *Queue) take() Entry {
	e := *q.at(0)
	*q.at(0) = Entry{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.count--
	if q.count == 0 && len(q.ring) > fewEntries {
		q.ring, q.head = nil, 0 // it would stay as long as the session
	}
	if e.Kind.Ready() {
		q.ready--
	}
	return e
}

// remove takes entry number i out of the middle.
func (q *Queue) remove(i int) {
	if q.at(i).Kind.Ready() {
		q.ready--
	}
	for ; i < q.count-1; i++ {
		*q.at(i) = *q.at(i + 1)
	}
	*q.at(q.count - 1) = Entry{}
	q.count--
}

// fewEntries is the size of a ring that an empty queue keeps.
const fewEntries = 8

func (q *Queue) grow() {
	size := max(fewEntries, 2*len(q.ring))
	ring := make([]Entry, size)
	for i := range q.count {
		ring[i] = *q.at(i)
	}
	q.ring, q.head = ring, 0
}
