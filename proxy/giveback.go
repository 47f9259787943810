package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// strayLocked takes the locks out of the session's that are in its tag no more,
// and will not be again by a rollback. The caller holds mu and gives them back.
func (s *session) strayLocked() []fencing.Loan {
	if len(s.loans) == 0 || s.mirror.unsure || s.mirror.open {
		return nil
	}
	tag, incomplete, err := s.mirror.tag()
	if incomplete || err != nil {
		return nil
	}
	var stray []fencing.Loan
	for key, loan := range s.loans {
		if tag.Token(key) != loan.Token {
			stray = append(stray, loan)
			delete(s.loans, key)
		}
	}
	return stray
}

// takeBack gives up a lock that the session was about to have.
func (s *session) takeBack(key string) {
	s.mu.Lock()
	loan, has := s.loans[key]
	delete(s.loans, key)
	s.mu.Unlock()
	if has {
		s.requesting.leave()
		s.giveBack([]fencing.Loan{loan})
	}
}

// giveBack gives locks back, all at once, and waits for it a while. One that etcd
// isn't told of in time is free when its lease has run out.
func (s *session) giveBack(loans []fencing.Loan) {
	if len(loans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.srv.ctx), giveBackWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, loan := range loans {
		all.Go(func() { s.giveOneBack(ctx, loan) })
	}
	all.Wait()
}

func (s *session) giveOneBack(ctx context.Context, loan fencing.Loan) {
	held, err := s.srv.Lender.Release(ctx, loan)
	switch {
	case err != nil:
		s.logger().Warn(LogLockLeft, "key", loan.Key, "token", loan.Token, "until", loan.Until, "error", err)
	case held:
		s.logger().Info(LogLockReleased, "key", loan.Key, "token", loan.Token)
	default:
		s.tellLost(loan)
	}
}

// tellLost logs that a lock was not the session's up to the end.
func (s *session) tellLost(loan fencing.Loan) {
	s.named().Warn(LogLockLost, "key", loan.Key, "token", loan.Token, "ttl", loan.TTL)
}

// partBackend closes the connection to PostgreSQL and waits for the reply pump. Of
// a session that holds locks PostgreSQL is to end it, if it does so soon: then the
// session's last transaction is over. The client hears none of that.
func (s *session) partBackend() {
	if s.lends() {
		s.boundWrites(time.Now().Add(partWithin))
		s.backend.SetReadDeadline(longAgo)
		<-s.replied
		s.backend.SetReadDeadline(time.Now().Add(partWithin))
		closeWrite(s.backend)
		s.backendEnded = s.backendEnded || errors.Is(s.fromBackend.Discard(), io.EOF)
	}
	s.dropBackend()
	<-s.replied
}

// leaveBackend is for the reply pump of a client that takes no more.
func (s *session) leaveBackend() {
	if s.lends() {
		closeWrite(s.backend) // and partBackend waits for its end
		return
	}
	s.backend.Close()
}

func (s *session) lends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.loans) > 0
}

// giveAllBack gives back what the session holds at its end, when its transaction
// has ended in PostgreSQL: a lock that was free before could have another holder
// while the former one's last statement still runs. If that can't be seen the
// locks are left to their leases.
func (s *session) giveAllBack() {
	s.mu.Lock()
	var loans []fencing.Loan
	for _, loan := range s.loans {
		loans = append(loans, loan)
	}
	s.loans = nil
	quiet := s.queue.Len() == 0 && s.owed == 0
	s.mu.Unlock()
	if len(loans) == 0 {
		return
	}
	if quiet || s.backendEnded {
		s.giveBack(loans)
		return
	}
	for _, loan := range loans {
		s.logger().Warn(LogLockLeft, "key", loan.Key, "token", loan.Token, "until", loan.Until)
	}
}
