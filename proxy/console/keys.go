package console

import (
	"context"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// SHOW KEYS asks etcd for the holders of as many keys, in one question, and waits no
// longer for it: who looks at night wants to see sessions, above all while etcd is away.
const (
	mostHolders   = 100
	holdersWithin = 500 * time.Millisecond
)

// How a token stands to the lock in etcd.
const (
	lockHeld    = "held"
	lockPassed  = "passed"
	lockGone    = "gone"
	lockUnknown = "unknown"
)

func (c *Console) keysView() view {
	return view{
		name: "keys", takes: takesPrefix | takesLimit,
		about: "the locks that sessions of this proxy are tagged with, by database and key",
		columns: []column{
			{"database", wire.TypeText, "of the sessions"},
			{"key", wire.TypeText, "resource key"},
			{"token", wire.TypeInt8, "that they present"},
			{"sessions", wire.TypeInt8, "how many"},
			{"transactions", wire.TypeInt8, "of them in a transaction, or active"},
			{"claimed", wire.TypeTimestamptz, "when the newest of them did; NULL: none has yet"},
			{"state", wire.TypeText, "the busiest of them: as in `SHOW SESSIONS`"},
			{"lock", wire.TypeText, "in etcd: `held`, the token is the holder's; `passed`, another one is; `gone`, nobody holds the lock; " +
				"`unknown`, etcd doesn't answer within half a second, as a WARNING says, or the key is behind the first 100"},
			{"holder", wire.TypeInt8, "the holder's token; NULL: nobody holds the lock, or it isn't known"},
			{"waiting", wire.TypeInt8, "how many stand in line behind the holder; NULL as before"},
			{"lease_left", wire.TypeInt8, "seconds that the holder's lease lasts if it isn't renewed, by etcd's clock; NULL also: it has none"},
		},
		show: c.showKeys,
	}
}

func (c *Console) showKeys(ctx context.Context, q query) (a answer, err error) {
	var shown []live.Key
	for _, k := range live.Keys(c.Server.LiveSessions()) {
		if !strings.HasPrefix(k.Key, q.prefix) {
			continue
		}
		shown = append(shown, k)
		a.rows = append(a.rows, []any{text(k.Database), text(k.Key), int64(k.Token), int64(k.Sessions),
			int64(k.Transactions), moment(k.Claimed), k.State.String()})
	}
	a = q.limited(a)
	asked, held := c.holders(ctx, shown[:len(a.rows)], &a)
	for i := range a.rows {
		a.rows[i] = append(a.rows[i], standing(shown[i], asked, held)...)
	}
	return a, nil
}

// holders asks etcd who holds the first of the keys. What it can't tell, the client is
// told.
func (c *Console) holders(ctx context.Context, shown []live.Key, told *answer) (asked map[string]bool, held map[string]live.Lock) {
	asked = map[string]bool{}
	var keys []string
	more := false
	for _, k := range shown {
		switch {
		case asked[k.Key]:
		case len(keys) == mostHolders:
			more = true
		default:
			asked[k.Key] = true
			keys = append(keys, k.Key)
		}
	}
	if len(keys) == 0 || c.Locks == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdersWithin)
	defer cancel()
	locks, err := c.Locks.HeldLocks(ctx, keys)
	if err != nil {
		told.notices = append(told.notices, notice("WARNING", "the locks' holders are unknown: %v", err))
		return nil, nil
	}
	if more {
		told.notices = append(told.notices, notice("NOTICE", "etcd is asked for %d keys at a time: SHOW KEYS 'prefix' shows fewer", mostHolders))
	}
	held = map[string]live.Lock{}
	for _, l := range locks {
		held[l.Key] = l
	}
	return asked, held
}

// standing are the columns of what is known of a key's lock.
func standing(k live.Key, asked map[string]bool, held map[string]live.Lock) []any {
	lock, ok := held[k.Key]
	switch {
	case !asked[k.Key]:
		return []any{lockUnknown, nil, nil, nil}
	case !ok:
		return []any{lockGone, nil, nil, nil}
	}
	how := lockPassed
	if lock.Token == k.Token {
		how = lockHeld
	}
	return []any{how, int64(lock.Token), int64(lock.Waiting), number(int64(lock.Left / time.Second))}
}
