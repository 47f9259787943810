package leases_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// startWatch runs a Watch over a client until the end of the test.
func startWatch(t testing.TB, client *clientv3.Client) *leases.Watch {
	t.Helper()
	w := leases.NewWatch(client)
	run(t, w)
	return w
}

// run runs a Watch until the end of the test.
func run(t testing.TB, w *leases.Watch) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		wait(t, "the watch to end", done)
	})
}

// untilHolder waits until a lock is seen with a holder, 0 for none.
func untilHolder(t *testing.T, w *leases.Watch, key string, want fencing.Token) fencing.Sighting {
	t.Helper()
	var seen fencing.Sighting
	poll(t, fmt.Sprintf("%s is seen with holder %d", key, want), func() bool {
		var known bool
		seen, known = w.Seen(t.Context(), key)
		return known && seen.Holder == want
	})
	return seen
}

func TestWatch_Seen(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	w := startWatch(t, client)
	const key = "a b/c"
	if _, known := w.Seen(t.Context(), key); known {
		t.Error("a lock that nobody follows is known")
	}
	w.Follow(key)
	if seen, known := w.Seen(t.Context(), key); !known || seen.Holder != 0 || seen.Revision == 0 {
		t.Errorf("a free lock: got %+v, %v", seen, known)
	}
	first := acquire(t, leases.NewLocker(client), key)
	seen := untilHolder(t, w, key, first.Token())
	if seen.Gone(first.Token()) || !strings.HasPrefix(seen.LockKey, leases.LockPrefix(leases.DefaultPrefix, key)+"/") {
		t.Errorf("got %+v, want the holder's key", seen)
	}
	// Neither a waiter nor a lock below this one, nor a key that is written to
	// again, is a holder.
	waiter := leases.LockPrefix(leases.DefaultPrefix, key) + "/ffff"
	for name, option := range map[string]clientv3.OpOption{
		waiter: clientv3.WithLease(clientv3.NoLease), waiter + "/a": clientv3.WithLease(clientv3.NoLease), seen.LockKey: clientv3.WithIgnoreLease(),
	} {
		if _, err := client.Put(t.Context(), name, "", option); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Revoke(t.Context(), first.ID()); err != nil {
		t.Fatal(err)
	}
	poll(t, "the waiter is seen as the holder", func() bool {
		seen, _ := w.Seen(t.Context(), key)
		return seen.Newer(first.Token()) && seen.LockKey == waiter
	})
	if _, err := client.Delete(t.Context(), waiter); err != nil {
		t.Fatal(err)
	}
	untilHolder(t, w, key, 0)
	w.Follow(key)
	w.Unfollow(key)
	if _, known := w.Seen(t.Context(), key); !known {
		t.Error("a lock that is followed still is unknown")
	}
	w.Unfollow(key)
	if _, known := w.Seen(t.Context(), key); known {
		t.Error("a lock that nobody follows any more is known")
	}
}

// A gate is a way to a server that can be shut.
type gate struct {
	addr string
	to   string

	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func newGate(t testing.TB, endpoint string) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: ln.Addr().String(), to: strings.TrimPrefix(endpoint, "http://")}
	var pumps sync.WaitGroup
	pumps.Go(func() { g.accept(ln, &pumps) })
	t.Cleanup(func() {
		ln.Close()
		g.close(true)
		pumps.Wait()
	})
	return g
}

func (g *gate) accept(ln net.Listener, pumps *sync.WaitGroup) {
	for {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.to)
		if err != nil {
			in.Close()
			continue
		}
		g.mu.Lock()
		if g.shut {
			in.Close()
			out.Close()
		}
		g.conns = append(g.conns, in, out)
		g.mu.Unlock()
		for _, pair := range [...][2]net.Conn{{in, out}, {out, in}} {
			pumps.Go(func() {
				io.Copy(pair[0], pair[1])
				pair[0].Close()
			})
		}
	}
}

// close cuts all connections, and with shut keeps new ones out.
func (g *gate) close(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

func (g *gate) open() { g.close(false) }

// While the watch is cut off it knows what was, and refuses nobody for what it
// can't know; when it is back it knows what has happened meanwhile, though etcd
// has compacted that away.
func TestWatch_Compaction(t *testing.T) {
	etcd := startEtcd(t)
	way, client := newGate(t, etcd.Endpoint()), newClient(t, etcd.Endpoint())
	w := leases.NewWatch(newClient(t, "http://"+way.addr))
	var mu sync.Mutex
	var broken []string
	w.Broken = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		broken = append(broken, err.Error())
	}
	run(t, w)
	locker := leases.NewLocker(client)
	old, next := acquire(t, locker, "passed"), acquire(t, locker, "kept")
	for _, key := range []string{"passed", "kept", "freed"} {
		w.Follow(key)
	}
	freed := acquire(t, locker, "freed")
	untilHolder(t, w, "passed", old.Token())
	untilHolder(t, w, "kept", next.Token())
	untilHolder(t, w, "freed", freed.Token())

	way.close(true)
	for _, lease := range []*leases.Lease{old, freed} {
		if _, err := client.Revoke(t.Context(), lease.ID()); err != nil {
			t.Fatal(err)
		}
	}
	taken := acquire(t, locker, "passed")
	last, err := client.Put(t.Context(), "unrelated", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), last.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for key, holder := range map[string]fencing.Token{"passed": old.Token(), "freed": freed.Token()} {
		if seen, known := w.Seen(t.Context(), key); !known || seen.Gone(holder) || seen.Gone(taken.Token()) {
			t.Errorf("%s: got %+v, %v while cut off, want what was", key, seen, known)
		}
	}

	way.open()
	untilHolder(t, w, "passed", taken.Token())
	untilHolder(t, w, "freed", 0)
	untilHolder(t, w, "kept", next.Token())
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(strings.Join(broken, "; "), "compacted") {
		t.Errorf("got %q, want a watch that was compacted away", broken)
	}
}

// The loss of the leader, and of the member that the watch was with, is only a
// pause.
func TestWatch_LeaderLoss(t *testing.T) {
	members, stop := startMembers(t, 3)
	var endpoints []string
	leader := 0
	for i, m := range members {
		endpoints = append(endpoints, "http://"+m.Clients[0].Addr().String())
		if m.Server.Leader() == m.Server.MemberID() {
			leader = i
		}
	}
	w := startWatch(t, newClient(t, endpoints[leader], endpoints[(leader+1)%3], endpoints[(leader+2)%3]))
	w.Follow("k")
	other := newClient(t, endpoints[(leader+1)%3], endpoints[(leader+2)%3])
	lease := acquire(t, leases.NewLocker(other), "k")
	untilHolder(t, w, "k", lease.Token())
	stop[leader]()
	poll(t, "the lock is given back", func() bool {
		_, err := other.Revoke(t.Context(), lease.ID())
		return err == nil
	})
	untilHolder(t, w, "k", 0)
}

// A watch that etcd opened and then says nothing to, asked or not, is begun anew.
func TestWatch_Quiet(t *testing.T) {
	etcd := startEtcd(t)
	var streams atomic.Int32
	deafen := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || method != "/etcdserverpb.Watch/Watch" || streams.Add(1) > 1 {
			return s, err
		}
		return &deafStream{ClientStream: s}, nil
	}
	w := leases.NewWatch(newMeddledClient(t, etcd.Endpoint(), nil, deafen))
	w.Quiet = 300 * time.Millisecond
	var broken atomic.Value
	w.Broken = func(err error) { broken.Store(err.Error()) }
	run(t, w)
	client := newClient(t, etcd.Endpoint())
	w.Follow("k")
	w.Seen(t.Context(), "k")
	lease := acquire(t, leases.NewLocker(client), "k")
	untilHolder(t, w, "k", lease.Token())
	if got, want := broken.Load(), "watch locks: etcd says nothing to a watch"; got != want {
		t.Errorf("got %v, want %q", got, want)
	}
	poll(t, "the new watch is heard", func() bool { age, ok := w.Age(); return ok && age < w.Quiet })
}

// A deafStream hears the first message only.
type deafStream struct {
	grpc.ClientStream
	heard bool
}

func (s *deafStream) RecvMsg(m any) error {
	if s.heard {
		<-s.Context().Done()
		return s.Context().Err()
	}
	s.heard = true
	return s.ClientStream.RecvMsg(m)
}
