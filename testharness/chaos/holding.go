package chaos

import (
	"context"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

const (
	// mostRounds is how many writes a holder does at most before it gives the
	// lock back.
	mostRounds = 60
	// defiantRounds is how many it does after that, if it is one of those.
	defiantRounds = 8
	// lookBack is how far below its own token a holder reads, in revisions of
	// etcd: a minute or so, which is longer than anybody is paused.
	lookBack = 2500
	// besides is how often a holder opens a second session.
	besides = 0.1
	// claimTries is how often a holder claims before it gives up.
	claimTries = 4
)

// holding holds one lock, and works under it.
func (w *worker) holding(ctx context.Context, s *session) *session {
	l := w.acquire(ctx, draw(w, w.Keys...))
	if l == nil {
		return s
	}
	return w.under(ctx, s, l)
}

// transferring holds two locks, and moves money between their accounts.
func (w *worker) transferring(ctx context.Context, s *session) *session {
	keys := w.twoKeys()
	first := w.acquire(ctx, keys[0])
	if first == nil {
		return s
	}
	second := w.acquire(ctx, keys[1])
	if second == nil {
		w.giveBack(ctx, first)
		return s
	}
	return w.under(ctx, s, first, second)
}

// under claims with locks, writes under them, and gives them back. Some holders
// go on writing after that, until they are told twice that it is over.
func (w *worker) under(ctx context.Context, s *session, locks ...*lock) *session {
	tag := make([]fencing.Pair, len(locks))
	w.starved, w.doubt = false, false
	for i, l := range locks {
		tag[i] = l.pair
		w.starved = w.starved || l.starved
	}
	if w.starved && w.chance(0.15) {
		w.nap() // until the lock is lost before it was ever claimed, perhaps
	}
	s, ok := w.entering(ctx, s, tag, true)
	if ok && w.chance(besides) {
		w.working(ctx, tag)
	}
	rounds := 1 + w.random.IntN(mostRounds)
	for range rounds {
		if !ok || w.doubt || ctx.Err() != nil || !held(locks) {
			break
		}
		s, ok = w.round(ctx, s, tag)
	}
	defiant := w.chance(0.25)
	for _, l := range locks {
		w.giveBack(ctx, l)
	}
	for refusals, i := 0, 0; defiant && !w.doubt && s != nil && i < defiantRounds && refusals < 2; i++ {
		if s, ok = w.round(ctx, s, tag); !ok {
			refusals++
		}
	}
	return s
}

// working works under the same tag in a second session, while the first one
// is idle: both are the holder's.
func (w *worker) working(ctx context.Context, tag []fencing.Pair) {
	s, ok := w.entering(ctx, nil, tag, false)
	for i := 0; ok && !w.doubt && i < defiantRounds; i++ {
		s, ok = w.round(ctx, s, tag)
	}
	if s != nil {
		s.close()
	}
}

func held(locks []*lock) bool {
	for _, l := range locks {
		if !l.held() {
			return false
		}
	}
	return true
}

// entering claims, until it is answered yes or told that the lock is lost, and
// reads each of its keys first of all, as whoever relies on the read barrier does.
func (w *worker) entering(ctx context.Context, s *session, tag []fencing.Pair, first bool) (*session, bool) {
	for range claimTries {
		if ctx.Err() != nil {
			return s, false
		}
		if s == nil && (len(tag) > 1 || w.chance(0.5)) {
			s, _ = open(ctx, draw(w, w.Gates...), nil) // without one the claim opens its own
			if s == nil {
				continue
			}
		}
		var op *history.Op
		if s, op = w.claim(ctx, s, tag, false); op.Outcome == history.OutcomeOK && s != nil {
			if first {
				w.tally.Takeovers += len(tag)
			}
			for _, p := range tag {
				if s != nil {
					s = w.reading(ctx, s, p, true)
				}
			}
			return s, true
		}
		if op.Outcome == history.OutcomeRefused && op.Code != fencing.CodeUnverified && op.Code != fencing.CodeClaimTimeout {
			return s, false
		}
		// Another proxy may be better off.
		if s != nil {
			s.close()
			s = nil
		}
	}
	return s, false
}

// round reads or writes once. It returns false when there is no point in going
// on; a connection that is lost is replaced.
func (w *worker) round(ctx context.Context, s *session, tag []fencing.Pair) (*session, bool) {
	if s == nil {
		return w.entering(ctx, nil, tag, false)
	}
	if w.chance(0.05) {
		return w.reading(ctx, s, draw(w, s.tag...), false), true
	}
	s, over := w.write(ctx, s)
	return s, !over
}

// reading reads one of the session's keys.
func (w *worker) reading(ctx context.Context, s *session, p fencing.Pair, first bool) *session {
	ctx, cancel := finishing(ctx, requestTimeout)
	defer cancel()
	op := &history.Op{Kind: history.KindRead, Tag: s.tag, Key: p.Key, First: first, Via: w.via(s.gate), Opened: s.open, Claimed: s.claimed}
	w.record.Begin(op)
	seen, err := s.look(ctx, p)
	if err == nil {
		op.Seen = seen
	}
	settle(op, err)
	w.end(op)
	return s.after(op)
}

// look reads a key, in a block where the tag is presented in each.
func (s *session) look(ctx context.Context, p fencing.Pair) (*history.Seen, error) {
	if !s.local {
		return s.lookNow(ctx, p)
	}
	err := s.exec(ctx, "BEGIN")
	if err == nil {
		err = s.exec(ctx, setLocal(s.tag))
	}
	var seen *history.Seen
	if err == nil {
		seen, err = s.lookNow(ctx, p)
	}
	return seen, s.finish(ctx, err)
}

func (s *session) lookNow(ctx context.Context, p fencing.Pair) (*history.Seen, error) {
	seen := &history.Seen{Floor: max(p.Token-lookBack, 0)}
	err := s.conn.QueryRow(ctx, `SELECT (SELECT n FROM counter WHERE key = $1), count(*), coalesce(sum(id), 0)::bigint, coalesce(bit_xor(id), 0)
		FROM entry WHERE key = $1 AND token < $2 AND token >= $3`, p.Key, int64(p.Token), int64(seen.Floor)).
		Scan(&seen.N, &seen.Count, &seen.Sum, &seen.Xor)
	return seen, err
}
