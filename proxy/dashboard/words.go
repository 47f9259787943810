package dashboard

import (
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// A standing is how a token that sessions present stands.
type standing string

const (
	// standsUnknown: neither PostgreSQL nor etcd has told.
	standsUnknown standing = "unknown"
	// standsClaiming: it is being claimed.
	standsClaiming standing = "claiming"
	// standsUnclaimed: it was never accepted.
	standsUnclaimed standing = "unclaimed"
	// standsStale: a higher one was accepted.
	standsStale standing = "stale"
	// standsAccepted: it is the mark; etcd couldn't be asked for its holder.
	standsAccepted standing = "accepted"
	// standsHolder: it is the mark, and the holder's in etcd.
	standsHolder standing = "holder"
	// standsGone: it is the mark, and nobody holds the lock.
	standsGone standing = "gone"
	// standsPassed: it is the mark, and etcd has another holder, who is yet to claim.
	standsPassed standing = "passed"
)

func (f found) standing(of live.Key) standing {
	mark := f.mark.Token
	if !f.mark.Current {
		mark = 0
	}
	switch {
	case of.Claimed.IsZero() && of.State == live.Claiming:
		return standsClaiming
	case !f.marked:
		return standsUnknown
	case mark > of.Token:
		return standsStale
	case mark < of.Token:
		return standsUnclaimed
	case !f.looked:
		return standsAccepted
	case !f.held:
		return standsGone
	case f.lock.Token != of.Token:
		return standsPassed
	}
	return standsHolder
}

// words say what a standing means for who presents the token.
func (f found) words(s standing) string {
	switch s {
	case standsClaiming:
		return "being claimed"
	case standsUnclaimed:
		return "not accepted: its sessions can't write"
	case standsStale:
		return fmt.Sprintf("token %s was accepted, so its writes are refused", f.mark.Token)
	case standsAccepted:
		return "etcd can't be asked who holds the lock"
	case standsHolder:
		return "holds the lock"
	case standsGone:
		return "accepted, but nobody holds the lock in etcd any more"
	case standsPassed:
		return fmt.Sprintf("accepted, but the lock is held by token %s now, which is yet to claim", f.lock.Token)
	case standsUnknown:
	}
	return "not known: marks can't be read"
}

// Describe says in a sentence what an event tells of.
func Describe(e live.Event) string {
	who := fmt.Sprintf("session %d", e.Session)
	if e.User != "" {
		who += " of " + e.User
	}
	switch e.Kind {
	case live.SessionStarted:
		return capital(who) + " began, from " + e.Remote
	case live.SessionEnded:
		return capital(who) + " ended: " + e.What
	case live.Claimed:
		return describeClaim(e)
	case live.ClaimRefused:
		return fmt.Sprintf("Token %s was not accepted: %s", e.Token, e.Message)
	case live.StatementRefused:
		switch e.What {
		case "startup":
			return fmt.Sprintf("The tag that %s began with was refused: %s", who, e.Message)
		case "session":
			return fmt.Sprintf("The next statement of %s was refused: %s", who, e.Message)
		}
		return fmt.Sprintf("A statement of %s was refused: %s", who, e.Message)
	case live.SessionEvicted:
		return capital(who) + " was ended: " + supersededBy(e)
	case live.BackendEnded:
		return "A claim ended what blocked it in PostgreSQL: " + e.What
	}
	return e.Kind.String()
}

func describeClaim(e live.Event) string {
	text := fmt.Sprintf("Token %s was accepted: its holder may write now", e.Token)
	if e.What == "held" {
		text = fmt.Sprintf("Token %s was confirmed again", e.Token)
	}
	var ended []string
	if e.Evicted > 0 {
		ended = append(ended, counted(e.Evicted, "session"))
	}
	if e.Ended > 0 {
		ended = append(ended, counted(e.Ended, "process")+" in PostgreSQL")
	}
	if len(ended) > 0 {
		text += "; " + strings.Join(ended, " and ") + " with a lower token ended for it"
	}
	return text
}

func supersededBy(e live.Event) string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("its token %s was superseded by %s", e.Token, e.Higher)
}

func counted(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
