package chaos_test

import (
	"bytes"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/chaos"
	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
	"github.com/fenceproxy/fenceproxy/testharness/history"
)

// What etcd says is taken down whole: who held a lock, in order, and for a time
// that lies within the true one's bounds. Locks further down are other locks.
func TestWatch(t *testing.T) {
	etcd := etcdtest.New(t)
	client, err := leases.NewClient([]string{etcd.Endpoint()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	locker := leases.NewLocker(client)
	// What was before the watch began belongs to it too.
	first, err := locker.TryAcquire(t.Context(), "a key/with a slash")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	watcher := chaos.Watch(t.Context(), client, history.NewRecorder("", &file))
	below := leases.LockPrefix(leases.DefaultPrefix, "a key/with a slash") + "/further/down"
	if _, err := client.Put(t.Context(), below, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), below); err != nil {
		t.Fatal(err)
	}
	before := history.Now()
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	between := history.Now()
	second, err := locker.TryAcquire(t.Context(), "a key/with a slash")
	if err != nil {
		t.Fatal(err)
	}
	// A change of the holder's value changes nothing.
	if _, err := client.Put(t.Context(), second.LockKey(), "x", clientv3.WithLease(second.ID())); err != nil {
		t.Fatal(err)
	}
	if err := watcher.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := history.Now()
	h, err := history.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	all := history.Tenures(h.Locks)
	got := all["a key/with a slash"]
	if len(all) != 1 || len(got) != 2 || got[0].Token != first.Token() || got[1].Token != second.Token() {
		t.Fatalf("got %v, want tokens %d and %d of one lock", all, first.Token(), second.Token())
	}
	if end := got[0].To; end.Lo > between || end.Hi < before {
		t.Errorf("the end of the first: got %v, which doesn't touch %d to %d", end, before, between)
	}
	if begin := got[1].From; begin.Lo > after || begin.Hi < between || got[1].To.Lo != history.Never {
		t.Errorf("the second: got %v to %v, want it from after %d on", begin, got[1].To, between)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWatch_Stop(t *testing.T) {
	client, err := leases.NewClient([]string{"http://127.0.0.1:1"}, nil) // nobody is there
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var file bytes.Buffer
	chaos.Watch(t.Context(), client, history.NewRecorder("", &file)).Stop()
}
