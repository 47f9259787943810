package sqlrewrite_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

func TestSettings_LockCalls(t *testing.T) {
	constant := func(text string) sqlrewrite.LockArgument {
		return sqlrewrite.LockArgument{Argument: sqlrewrite.Argument{Text: text}, Given: true}
	}
	bound := func(n int) sqlrewrite.LockArgument {
		return sqlrewrite.LockArgument{Given: true, Param: sqlrewrite.Param{Number: n}}
	}
	null := sqlrewrite.LockArgument{Argument: sqlrewrite.Argument{Null: true}, Given: true}
	call := func(v sqlrewrite.Verb, args ...sqlrewrite.LockArgument) *sqlrewrite.LockCall {
		all := append(args, make([]sqlrewrite.LockArgument, 3-len(args))...)
		return &sqlrewrite.LockCall{Verb: v, Key: all[0], TTL: all[1], Wait: all[2]}
	}
	acquire, left := sqlrewrite.AcquireLock, sqlrewrite.LockArgument{}
	for _, c := range []struct {
		text string
		want *sqlrewrite.LockCall // nil: what it does can't be told
	}{
		{"SELECT fence.acquire('k')", call(acquire, constant("k"))},
		{"select * from Fence.\"acquire\" ( E'it\\'s' , '30s' , $w$5s$w$ ) as l", call(acquire, constant("it's"), constant("30s"), constant("5s"))},
		{"SELECT token, l.expires_at::text AS \"until\" FROM fence.acquire($1, $2::text) l", call(acquire, bound(1), bound(2))},
		{"SELECT l.*, token t FROM fence.acquire('k', wait => $1) AS l", call(acquire, constant("k"), left, bound(1))},
		{"SELECT fence.acquire(wait => '1s', key => 'k', ttl => NULL) AS lock", call(acquire, constant("k"), null, constant("1s"))},
		{"SELECT * FROM fence.renew('k')", call(sqlrewrite.RenewLock, constant("k"))},
		{"SELECT fence.release(CAST($1 AS text))", call(sqlrewrite.ReleaseLock, bound(1))},

		{"SELECT fence.acquire()", nil},
		{"SELECT fence.acquire('k', ttl => '1s', '2s')", nil},
		{"SELECT fence.acquire('k', key => 'l')", nil},
		{"SELECT fence.acquire('k', other => 'l')", nil},
		{"SELECT fence.acquire('k', '1s', '2s', '3s')", nil},
		{"SELECT fence.renew('k', '1s')", nil},
		{"SELECT fence.acquire('k' || 'l')", nil},
		{"SELECT fence.acquire(upper('k'))", nil},
		{"SELECT fence.acquire(k) FROM t", nil},
		{"SELECT fence.acquire('k') FROM t", nil},
		{"SELECT fence.acquire('k'), 1", nil},
		{"SELECT (fence.acquire('k')).*", nil},
		{"SELECT f(token) FROM fence.acquire('k')", nil},
		{"SELECT token + 1 FROM fence.acquire('k')", nil},
		{"SELECT token::other FROM fence.acquire('k')", nil},
		{"SELECT * FROM fence.acquire('k'), t", nil},
		{"SELECT * FROM fence.acquire('k') WHERE token > 1", nil},
		{"SELECT * FROM fence.acquire('k') UNION SELECT * FROM t", nil},
		{"SELECT token INTO t FROM fence.acquire('k')", nil},
		{"SELECT * FROM ONLY fence.acquire('k')", nil},
		{"SELECT * FROM fence.acquire(U&'k')", nil},
		{"WITH l AS (SELECT * FROM fence.acquire('k')) SELECT * FROM l", nil},
	} {
		want := []sqlrewrite.Setting{{Kind: sqlrewrite.Unknown}}
		if c.want != nil {
			want = []sqlrewrite.Setting{{Kind: sqlrewrite.Lock, Name: "fence.tokens", Call: c.want}}
		}
		if diff := cmp.Diff(want, settings(t, c.text, sqlrewrite.Options{})); diff != "" {
			t.Errorf("%s: got the other, want\n%s", c.text, diff)
		}
	}
}

// A text that calls one of the functions turns its session into one that is
// looked at.
func TestMentionsFence_LockCalls(t *testing.T) {
	for text, want := range map[string]bool{
		"SELECT fence.acquire('k')": true, "SELECT \"fence\" . \"RENEW\" ('k')": true, "DO $$BEGIN PERFORM fence.release('k'); END$$": true,
		"SELECT fence.acquired('k')": false, "SELECT fence.check()": false, "SELECT offence.acquire2('k')": false,
	} {
		if got := sqlrewrite.MentionsFence([]byte(text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestLockCall_Resolve(t *testing.T) {
	call := sqlrewrite.LockCall{Verb: sqlrewrite.AcquireLock, Key: sqlrewrite.LockArgument{Given: true, Param: sqlrewrite.Param{Number: 2}}}
	got := call.Resolve(func(p sqlrewrite.Param) (sqlrewrite.Argument, bool) {
		return sqlrewrite.Argument{Text: "k"}, p.Number == 2
	})
	if got == nil || got.Key.Text != "k" || got.IsBound() {
		t.Errorf("got %+v, want key k and nothing bound", got)
	}
	if !call.IsBound() {
		t.Error("the statement's own call has lost its parameter")
	}
	if got := call.Resolve(func(sqlrewrite.Param) (sqlrewrite.Argument, bool) { return sqlrewrite.Argument{}, false }); got != nil {
		t.Errorf("a parameter that can't be told: got %+v, want nil", got)
	}
}
