package queue

// A server in copy-in mode ignores a Sync and a Flush, takes CopyDone and
// CopyFail for the end, and answers anything else with the end of the session
// (CopyGetData in src/backend/commands/copyfromparse.c). A copy can fail at any
// point of what was sent for it; from there on the server reads as it always
// does after an error: a Sync is answered, copy data is not. So the replies to
// a copy that failed don't tell which of the Syncs sent before its end it had
// read. Whoever pushes must not send anything behind such a copy that is
// answered by more than a ReadyForQuery: see Unclear and InDoubt.

// Copying reports whether the backend waits for copy data.
func (q *Queue) Copying() bool { return q.copying }

// Starving reports whether the backend waits for copy data, and the client has
// sent neither its end nor what the backend can't take there.
func (q *Queue) Starving() bool {
	for i := 1; i < q.count; i++ {
		if k := q.at(i).Kind; k != CopyData && k != Sync {
			return false
		}
	}
	return q.copying
}

// Unclear reports whether the last requests are an Execute or a Query, Syncs
// and copy data: what a copy makes of the Syncs must be known before anything
// else is pushed than more of the same, or the end of the copy.
func (q *Queue) Unclear() bool {
	syncs, data := false, false
	for i := q.count - 1; i >= 0; i-- {
		switch k := q.at(i).Kind; k {
		case Sync:
			syncs = true
		case CopyData, CopyEnd:
			data = true
		default:
			return syncs && data && (k == Execute || k == Query)
		}
	}
	return false
}

// InDoubt reports whether a copy has failed that may have read Syncs or left
// them to be answered. Before anything else is sent a Sync and a Close with
// purpose Resolve must be pushed, and the CloseComplete be waited for: the Sync
// is answered in any case and the Close only behind it, so every ReadyForQuery
// but one is that of a Sync in doubt.
func (q *Queue) InDoubt() bool { return q.doubt > 0 }

// Reopened reports whether a copy that is over has read the Syncs that were
// sent last: the segment that they seemed to end goes on.
func (q *Queue) Reopened() bool { return q.eaten && q.ready == 0 }

// TakeReopened is Reopened, and forgets it.
func (q *Queue) TakeReopened() bool {
	was := q.Reopened()
	q.eaten = false
	return was
}

// settle takes a reply that shows that no more Sync in doubt is answered.
func (q *Queue) settle() {
	if q.doubt > 0 && !q.told {
		q.eaten = true
	}
	q.doubt = 0
}

// endCopy leaves copy-in mode and drops the Syncs that the server read while
// it was in it. After success those are all before the end of the copy. An
// error can come before the server has read anything, or after any of them:
// all that were sent before the end of the copy are dropped in doubt.
func (q *Queue) endCopy(success bool) {
	if !q.copying {
		return
	}
	q.copying = false
	if !success {
		q.told = false
		q.doubt += q.folded
	}
	q.folded = 0
	for q.count > 1 {
		switch e := q.at(1); e.Kind {
		case Sync:
			q.droppedEnds |= e.Ends
			q.droppedTagged = q.droppedTagged || e.Tagged
			if success {
				q.eaten = true
			} else {
				q.doubt++
			}
		case CopyData:
		case CopyEnd:
			q.remove(1)
			return
		default:
			return
		}
		q.remove(1)
	}
}

// Fold makes room while Starving holds: a server that waits for copy data
// ignores every Sync, and all but the last are only counted.
func (q *Queue) Fold() {
	kept := q.count - 1
	for ; kept > 0 && q.at(kept).Kind != Sync; kept-- {
	}
	for i := 1; i < kept; i++ {
		if e := q.at(i); e.Kind == Sync {
			q.folded++
			q.ready--
			q.droppedEnds |= e.Ends
			q.droppedTagged = q.droppedTagged || e.Tagged
		}
	}
	n := 1
	if kept > 0 {
		*q.at(1) = *q.at(kept)
		n = 2
	}
	for i := n; i < q.count; i++ {
		*q.at(i) = Entry{}
	}
	q.count = n
}
