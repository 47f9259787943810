package cases_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/child"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// place gets in line for a lock as etcd's own Mutex does, and returns the
// create revision of its key, and the lease that the key lives under.
func (r *rig) place(key string) (token fencing.Token, lease clientv3.LeaseID) {
	r.t.Helper()
	ctx := r.t.Context()
	granted, err := r.Client.Grant(ctx, 60)
	if err != nil {
		r.t.Fatal(err)
	}
	name := fmt.Sprintf("%s/%x", leases.LockPrefix(leases.DefaultPrefix, key), granted.ID)
	put, err := r.Client.Put(ctx, name, "", clientv3.WithLease(granted.ID))
	if err != nil {
		r.t.Fatal(err)
	}
	return fencing.Token(put.Header.Revision), granted.ID
}

// line is the number of keys in line for a lock.
func (r *rig) line(key string) int64 {
	r.t.Helper()
	got, err := r.Client.Get(r.t.Context(), leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Count
}

// goesOn checks that the holder's session writes, and a new one of its own is
// accepted by either proxy.
func (r *rig) goesOn(key string, token fencing.Token) {
	r.t.Helper()
	for i, p := range []protocol{simple, extended} {
		via := r.first
		if i == 1 {
			via = r.other
		}
		accepted(r.t, "the holder's write", p.run(r.tagged(via, key, token), "INSERT INTO t VALUES (1, 'holder')"))
	}
	r.wantRows("1 holder, 1 holder")
	r.wantMark(key, token)
}

// presents has a session present a number that is no holder's, and write in
// spite of the refusal, in both protocols.
func (r *rig) presents(key string, token fencing.Token, says ...string) {
	r.t.Helper()
	for _, p := range protocols() {
		conn := r.session(r.first)
		refused(r.t, "the tag", tag(conn, key, token), fencing.CodeNotHolder, says...)
		refused(r.t, "a write all the same", p.run(conn, "INSERT INTO t VALUES (-1, 'nobody')"), fencing.CodeNotHolder)
		refused(r.t, "a read all the same", p.run(conn, "SELECT * FROM t"), fencing.CodeNotHolder)
	}
}

// Case 3: a Lock call that returned although its lease had died while it stood
// in line. The phantom's number may be above the holder's or below it.
func TestCase3_Phantom(t *testing.T) {
	r := newRig(t)
	for _, first := range []bool{true, false} {
		for _, claimed := range []bool{true, false} {
			t.Run(fmt.Sprintf("stood before the holder=%v/holder has claimed=%v", first, claimed), func(t *testing.T) {
				r := r.on(t)
				key := fmt.Sprintf("phantom:%v:%v", first, claimed)
				var phantom fencing.Token
				var dead clientv3.LeaseID
				var holder *leases.Lease
				if first {
					phantom, dead = r.place(key)
					r.revoke(dead)
					holder = r.hold(key, time.Minute)
				} else {
					holder = r.hold(key, time.Minute)
					phantom, dead = r.place(key)
					r.revoke(dead)
				}
				mark, code := fencing.Token(0), fencing.CodeNotHolder
				if claimed {
					r.tagged(r.other, key, holder.Token())
					mark = holder.Token()
					if first {
						code = fencing.CodeStale // the mark alone tells
					}
				}
				for _, p := range protocols() {
					conn := r.session(r.first)
					refused(t, "the phantom's tag", tag(conn, key, phantom), code)
					refused(t, "the phantom's write", p.run(conn, "INSERT INTO t VALUES (-1, 'phantom')"), code)
				}
				r.wantMark(key, mark)
				r.goesOn(key, holder.Token())
			})
		}
	}
}

func (r *rig) revoke(id clientv3.LeaseID) {
	r.t.Helper()
	if _, err := r.Client.Revoke(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
}

// Case 4: a waiter presents its own number, which is higher than the holder's
// and will be right when its turn comes.
func TestCase4_Waiter(t *testing.T) {
	r := newRig(t)
	const key = "waiter"
	holder := r.hold(key, time.Minute)
	r.tagged(r.other, key, holder.Token())
	session, err := concurrency.NewSession(r.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, leases.LockPrefix(leases.DefaultPrefix, key))
	locked := make(chan error, 1)
	go func() { locked <- mutex.Lock(t.Context()) }()
	poll.Until(t, "the waiter stands in line", func() bool { return r.line(key) == 2 })
	waiter := r.last(key)

	r.presents(key, waiter, "You are waiting", "the holder's token is "+holder.Token().String())
	r.wantMark(key, holder.Token())
	r.goesOn(key, holder.Token())

	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	r.admin("TRUNCATE t")
	r.goesOn(key, waiter)
}

// last is the create revision of the last key in line.
func (r *rig) last(key string) fencing.Token {
	r.t.Helper()
	got, err := r.Client.Get(r.t.Context(), leases.LockPrefix(leases.DefaultPrefix, key)+"/", clientv3.WithLastCreate()...)
	if err != nil || len(got.Kvs) != 1 {
		r.t.Fatalf("read the line for %s: %v, %v", key, got, err)
	}
	return fencing.Token(got.Kvs[0].CreateRevision)
}

// Case 5: etcdctl lock that had to wait exports the revision of a later read.
// The refusal has the right number in it.
func TestCase5_HeaderRevision(t *testing.T) {
	r := newRig(t)
	const key = "etcdctl"
	before := r.hold(key, time.Minute)
	r.tagged(r.other, key, before.Token())
	flag := filepath.Join(t.TempDir(), "flag")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "revision")
	cmd := exec.CommandContext(t.Context(), "etcdctl", "--endpoints", r.Etcd.Endpoint(), "lock", "--", leases.LockPrefix(leases.DefaultPrefix, key),
		"sh", "-c", `echo "$ETCD_LOCK_REV" >"$1"; while [ -e "$0" ] && kill -0 $PPID; do sleep 0.01; done`, flag, exported)
	cmd.SysProcAttr = child.Attributes()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start etcdctl, which `make setup` installs: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		os.Remove(flag)
		<-ended
	}()
	poll.Until(t, "etcdctl stands in line", func() bool { return r.line(key) == 2 })
	token := r.last(key)
	if _, err := r.Client.Put(t.Context(), "elsewhere", ""); err != nil {
		t.Fatal(err)
	}
	if err := before.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	var revision int64
	poll.Until(t, "etcdctl's command", func() bool {
		said, _ := os.ReadFile(exported)
		var err error
		revision, err = strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
		return err == nil
	})
	if revision <= int64(token) {
		t.Fatalf("ETCD_LOCK_REV %d is not above the create revision %d: this proves nothing", revision, token)
	}
	r.presents(key, fencing.Token(revision), "ETCD_LOCK_REV", "create revision: "+token.String())
	r.wantMark(key, before.Token())
	r.goesOn(key, token)
}
