package proxy

import (
	"github.com/fenceproxy/fenceproxy/proxy/queue"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A reopening is what the request side knew before a Sync that may have come
// in the middle of a COPY: the backend ignores it then, and the segment goes
// on.
type reopening struct {
	segment segment
	txn     txn
	midway  bool
	valid   bool
}

// synced takes note of a Sync that is about to end the segment.
func (s *session) synced() {
	if s.segment.open {
		s.reopening = reopening{segment: s.segment, txn: s.txn, midway: s.midway, valid: true}
	}
}

// reopen takes back that the segment has ended, where a COPY has read the
// Syncs that were sent last.
func (s *session) reopen() {
	if r := s.reopening; r.valid {
		s.segment, s.txn, s.midway = r.segment, r.txn, r.midway
	}
	s.reopening = reopening{}
}

// afterCopy sees to it, before a message is sent, that it is known what a COPY
// made of the Syncs that were sent during it. drop tells that the message
// comes behind an error, where the backend would skip it.
func (s *session) afterCopy(t byte, n int) (drop bool, err error) {
	switch {
	case t == wire.Terminate:
		return false, nil
	case t == wire.CopyData, t == wire.CopyDone, t == wire.CopyFail, t == wire.Flush && n == 0:
		return s.segment.dropping, nil
	}
	s.mu.Lock()
	unclear := t != wire.Sync && s.queue.Unclear()
	doubt, reopened := s.queue.InDoubt(), s.queue.Reopened()
	s.mu.Unlock()
	if unclear || doubt || reopened {
		if err := s.learnCopy(unclear); err != nil {
			return false, err
		}
	}
	return s.segment.dropping && t != wire.Sync, nil
}

// learnCopy waits, if its outcome is unclear, for the end of a COPY, and takes
// in what has become of the Syncs that were sent during it.
func (s *session) learnCopy(unclear bool) error {
	if unclear {
		if err := s.awaitEarlier(func() bool { return s.lost || !s.queue.Unclear() || s.queue.Starving() }); err != nil {
			return err
		}
	}
	s.mu.Lock()
	doubt := s.queue.InDoubt() && !s.lost
	s.mu.Unlock()
	if doubt {
		return s.resolve()
	}
	s.mu.Lock()
	reopened := s.queue.TakeReopened()
	s.mu.Unlock()
	if reopened {
		s.reopen()
	}
	return nil
}

// resolve asks the backend which of the Syncs that were sent during a COPY
// that failed it has read.
func (s *session) resolve() error {
	settled := func() bool { return s.lost || s.queue.Len() == 0 }
	if err := s.await(settled); err != nil { // a Query that failed is answered still
		return err
	}
	var b batch
	b.add(queue.Sync, queue.Resolve, wire.AppendSync(b.bytes))
	b.add(queue.Close, queue.Resolve, wire.AppendClose(b.bytes, 'S', resolveName))
	if err := s.send(&b); err != nil {
		return err
	}
	if err := s.awaitEarlier(settled); err != nil {
		return err
	}
	s.mu.Lock()
	all, status := s.queue.TakeReopened(), s.status
	s.mu.Unlock()
	if !all {
		s.endSegment()
		return nil
	}
	// The backend waited for a Sync, and has had one now. The client's own is
	// yet to come: what it sends up to there is dropped.
	s.reopen()
	s.segment = segment{number: s.segment.number, open: true, dropping: true}
	s.txn = txn{block: blockOf(status), held: status != wire.StatusIdle}
	return nil
}
