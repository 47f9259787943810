package live

import (
	"cmp"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A State is what a session is doing. The values are in the order in which they
// make a key's state: the highest of its sessions counts.
type State uint8

const (
	// Login: it has yet to say who it is, or to prove it.
	Login State = iota
	// Idle: it waits for the client, outside a transaction.
	Idle
	// IdleInTransaction: it waits for the client, in one.
	IdleInTransaction
	// IdleInFailed: it waits for the client, in one that has failed.
	IdleInFailed
	// Active: PostgreSQL, or the console, works on what the client asked.
	Active
	// Claiming: a claim of its tag is under way.
	Claiming
	// Evicted: a higher claim has ended it, and the client may not have heard yet.
	Evicted
	// Ending: it was told to end.
	Ending
)

// stateNames are PostgreSQL's own where pg_stat_activity has the like.
var stateNames = [...]string{
	"login", "idle", "idle in transaction", "idle in transaction (aborted)", "active", "claiming", "evicted", "ending",
}

func (s State) String() string { return stateNames[s] }

// A Session is one of a proxy's, as it stood at one moment. Of one that hasn't
// logged in only ID, Remote and State are known.
type Session struct {
	ID          uint64 // the number that the log has
	PID         uint32 // of its process in PostgreSQL; 0: it has none
	User        string
	Database    string
	Remote      string // the client's address
	Application string
	State       State
	Since       time.Time // when it logged in
	Console     bool      // it is with the console

	Tag fencing.Tag // what it has claimed,
	At  time.Time   // and when
	// Coming is what a claim under way will make of the tag.
	Coming fencing.Tag

	Transaction time.Time // when the open transaction began; zero where that isn't watched
	In, Out     uint64    // bytes from and to the client
}

// A Key is a lock that sessions of a proxy are tagged with, at one token.
type Key struct {
	Database     string
	Key          string
	Token        fencing.Token
	Sessions     int
	Transactions int       // of them in a transaction, or active
	Claimed      time.Time // by the newest of them; zero: none has yet
	State        State     // the highest of theirs
}

// Keys are the locks that sessions are tagged with, in the order of database, key
// and token.
func Keys(sessions []Session) []Key {
	type lock struct {
		database, key string
		token         fencing.Token
	}
	found := map[lock]*Key{}
	for _, s := range sessions {
		seen := map[fencing.Pair]bool{}
		for _, p := range append(slices.Clone(s.Tag), s.Coming...) {
			if seen[p] {
				continue
			}
			seen[p] = true
			at := lock{s.Database, p.Key, p.Token}
			if found[at] == nil {
				found[at] = &Key{Database: s.Database, Key: p.Key, Token: p.Token}
			}
			found[at].add(s, s.Tag.Token(p.Key) == p.Token)
		}
	}
	all := make([]Key, 0, len(found))
	for _, k := range found {
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Token, b.Token))
	})
	return all
}

// add counts a session that has the key or, unless it has claimed it, is about to.
func (k *Key) add(s Session, claimed bool) {
	k.Sessions++
	switch s.State {
	case IdleInTransaction, IdleInFailed, Active:
		k.Transactions++
	}
	if claimed && s.At.After(k.Claimed) {
		k.Claimed = s.At
	}
	k.State = max(k.State, s.State)
}
