package console_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// An etcd has locks, or doesn't answer.
type etcd struct {
	locks  map[string]live.Lock
	silent bool
	asked  []int // how many keys each time
}

func (e *etcd) HeldLocks(ctx context.Context, keys []string) (all []live.Lock, err error) {
	e.asked = append(e.asked, len(keys))
	if e.silent {
		<-ctx.Done()
		return nil, errors.New("etcd is away")
	}
	for _, k := range keys {
		if l, ok := e.locks[k]; ok {
			all = append(all, l)
		}
	}
	return all, nil
}

// held is a session that is tagged with a key.
func held(key string, token fencing.Token) live.Session {
	return live.Session{Database: "a", State: live.Idle, Tag: fencing.Tag{{Key: key, Token: token}}}
}

// SHOW KEYS tells how each token stands to the lock in etcd, and waits for no etcd that
// is away.
func TestClient_KeysLocks(t *testing.T) {
	e := &etcd{locks: map[string]live.Lock{
		"held":    {Key: "held", Token: 5, Waiting: 2, Left: 9*time.Second + time.Millisecond},
		"passed":  {Key: "passed", Token: 8, Left: time.Second},
		"forever": {Key: "forever", Token: 7},
	}}
	w := &world{locks: e, sessions: []live.Session{held("held", 5), held("held", 4), held("passed", 6), held("gone", 3), held("forever", 7)}}
	l := newLine(t, w)
	columns := func(from int, text string) string {
		l.from = from
		return l.take(wire.Query, text+"\x00").answered()
	}
	for _, c := range []struct {
		from int
		want string
	}{
		{1, "T D:forever,7 D:gone,3 D:held,4 D:held,5 D:passed,6 C:SHOW Z:I"},
		{7, "T D:held,7 D:gone, D:passed,5 D:held,5 D:passed,8 C:SHOW Z:I"},
		{9, "T D:0, D:, D:2,9 D:2,9 D:0,1 C:SHOW Z:I"},
	} {
		if diff := cmp.Diff(c.want, columns(c.from, "SHOW KEYS")); diff != "" {
			t.Errorf("columns from %d (-want +got):\n%s", c.from, diff)
		}
	}
	e.asked = nil
	if got, want := columns(7, "SHOW KEYS 'h' LIMIT 1"), "N:00000(1 more row is not shown) T D:passed,5 C:SHOW Z:I"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := columns(7, "SHOW KEYS 'x'"); got != "T C:SHOW Z:I" || fmt.Sprint(e.asked) != "[1]" {
		t.Errorf("no key: got %s, and etcd was asked for %v keys, want for none", got, e.asked)
	}
	e.silent = true
	if got := columns(7, "SHOW KEYS 'p'"); got != "N:01000 T D:unknown, C:SHOW Z:I" {
		t.Errorf("etcd is away: got %s", got)
	}
	w.locks = nil
	l = newLine(t, w)
	if got := columns(7, "SHOW KEYS 'p'"); got != "T D:unknown, C:SHOW Z:I" {
		t.Errorf("without etcd: got %s", got)
	}
}

// However many keys there are, etcd is asked for 100, and the client told so.
func TestClient_KeysMany(t *testing.T) {
	e := &etcd{}
	w := &world{locks: e}
	for i := range 150 {
		w.sessions = append(w.sessions, held(fmt.Sprintf("k%03d", i), 1), held(fmt.Sprintf("k%03d", i), 2))
	}
	l := newLine(t, w)
	l.from = 7
	got := l.take(wire.Query, "SHOW KEYS\x00").answered()
	if fmt.Sprint(e.asked) != "[100]" || strings.Count(got, "D:gone,") != 200 || strings.Count(got, "D:unknown,") != 100 || !strings.HasPrefix(got, "N:00000(etcd is asked for 100 keys at a time") {
		t.Errorf("asked for %v: got %s", e.asked, got)
	}
}
