package proxy

import (
	"fmt"
	"strings"
)

// An UntaggedWrites says what becomes of writes without a tag. The values are
// in the order of their strictness.
type UntaggedWrites uint8

const (
	// AllowUntagged: they are relayed as they are.
	AllowUntagged UntaggedWrites = iota
	// ObserveUntagged: they are relayed as they are, and logged and counted.
	ObserveUntagged
	// RejectUntagged: every session is checked, and a write without a tag is
	// refused with fencing.CodeTokenRequired.
	RejectUntagged
)

var untaggedWritesNames = [...]string{"allow", "observe", "reject"}

func (u UntaggedWrites) String() string { return untaggedWritesNames[u] }

// ParseUntaggedWrites reads the name of an UntaggedWrites.
func ParseUntaggedWrites(name string) (UntaggedWrites, error) {
	i, err := parseName(name, untaggedWritesNames[:])
	return UntaggedWrites(i), err
}

// A Fencing says what makes a token stale. The values are in the order of their
// strictness.
type Fencing uint8

const (
	// FenceAccepted: a higher token was accepted for the key.
	FenceAccepted Fencing = iota
	// FenceIssued: that, or the proxy has seen a newer holder in etcd, whether
	// or not that one has claimed.
	FenceIssued
	// FenceLive: that, or the proxy has seen that the holder's key is gone from
	// etcd, whether or not there is another.
	FenceLive
)

var fencingNames = [...]string{"accepted", "issued", "live"}

func (f Fencing) String() string { return fencingNames[f] }

// ParseFencing reads the name of a Fencing.
func ParseFencing(name string) (Fencing, error) {
	i, err := parseName(name, fencingNames[:])
	return Fencing(i), err
}

func parseName(name string, names []string) (int, error) {
	for i, n := range names {
		if n == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s", name, strings.Join(names, ", "))
}

// A Policy is what holds for the sessions of a role in a database. The zero
// value is the laxest.
type Policy struct {
	UntaggedWrites UntaggedWrites
	Fencing        Fencing
}

// stricter returns of each part the stricter one.
func (p Policy) stricter(q Policy) Policy {
	return Policy{max(p.UntaggedWrites, q.UntaggedWrites), max(p.Fencing, q.Fencing)}
}

// setPolicy is called until the session is opened.
func (s *session) setPolicy(p Policy) {
	s.policy, s.observed = p, nil
	if p.UntaggedWrites == ObserveUntagged {
		s.observed = &observation{}
	}
}

// A Rule gives a Policy to the sessions whose names it fits. In the patterns
// a * stands for any text, all else for itself; "" is *.
type Rule struct {
	Database, Role string
	Policy         Policy
}

// Policies are the rules of a Server. The first that fits a session counts,
// and Default where none does.
type Policies struct {
	Rules   []Rule
	Default Policy
}

// For returns the policy of a role's sessions in a database.
func (p *Policies) For(database, role string) Policy {
	for _, r := range p.Rules {
		if fits(r.Database, database) && fits(r.Role, role) {
			return r.Policy
		}
	}
	return p.Default
}

// Follow reports whether any session's fencing depends on what etcd says
// between claims.
func (p *Policies) Follow() bool {
	follow := p.Default.Fencing != FenceAccepted
	for _, r := range p.Rules {
		follow = follow || r.Policy.Fencing != FenceAccepted
	}
	return follow
}

// maxPattern is the longest name that PostgreSQL knows, in bytes.
const maxPattern = maxName

// CheckPattern refuses a pattern that can't fit any name.
func CheckPattern(pattern string) error {
	if n := len(strings.ReplaceAll(pattern, "*", "")); n > maxPattern {
		return fmt.Errorf("no name in PostgreSQL has over %d bytes", maxPattern)
	}
	if strings.ContainsRune(pattern, 0) {
		return fmt.Errorf("no name in PostgreSQL has a zero byte")
	}
	return nil
}

// fits reports whether a name fits a pattern.
func fits(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return len(rest) >= len(last) && strings.HasSuffix(rest, last)
}
