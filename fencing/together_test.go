package fencing_test

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// together waits until n callers are in flights.
func together(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	poll.Until(t, "callers together", func() bool {
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Claimer).carryOutTogether(") == n
	})
}

// Who asks while the same claim is under way gets no answer that is older than
// the question: the claim may have been done before a higher one was answered.
func TestClaimer_NeverOlderThanTheQuestion(t *testing.T) {
	s := newStack(t)
	link, err := fault.NewLink(s.srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	e := holder("a", 10)
	_, port, err := net.SplitHostPort(s.srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, behind, err := net.SplitHostPort(link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := s.claimerOf(strings.Replace(s.srv.DSN(adminRol, "postgres"), port, behind, 1), e, claimTimeout(deadline))
	e.hold("other", 9)
	if err := s.answered(start(t, c, "other", 9)); err != nil { // there is a connection now
		t.Fatal(err)
	}

	link.Set(fault.SilentBack)
	first := start(t, c, "a", 10)
	poll.Until(t, "the mark is raised", func() bool { return s.mark("a") == 10 })
	s.claim("a", 11)
	e.hold("a", 11)
	late := start(t, c, "a", 10)
	together(t, 2)
	link.Set(fault.Open)
	if err := s.answered(first); err != nil {
		t.Errorf("who asked first: got %v, want none", err)
	}
	refusal(t, s.answered(late), fencing.CodeStale, "11")
}

// Nor is it told that somebody else holds the lock, who has given it up before.
func TestClaimer_HolderSinceTheQuestion(t *testing.T) {
	s := newStack(t)
	e := holder("a", 9)
	asked, goOn := make(chan struct{}), make(chan struct{})
	e.set(func(e *etcd) {
		e.after = func() { close(asked); <-goOn }
	})
	c := s.claimer(e, func(c *fencing.Claimer) { c.VerifyTimeout = deadline })
	waiter := start(t, c, "a", 10)
	<-asked
	e.set(func(e *etcd) { e.after = nil })
	e.hold("a", 10)
	now := start(t, c, "a", 10)
	together(t, 2)
	close(goOn)
	refusal(t, s.answered(waiter), fencing.CodeNotHolder)
	if err := s.answered(now); err != nil {
		t.Errorf("who asked when it held the lock: %v", err)
	}
}
