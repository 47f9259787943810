package leases_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// reading counts requests, and looks at those for several lines.
type reading struct {
	requests, together atomic.Int64
	refuse             atomic.Bool // requests for several lines
	wrong              atomic.Pointer[pb.RangeRequest]
}

func (r *reading) meddle(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	r.requests.Add(1)
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	r.together.Add(1)
	for _, op := range txn.Success {
		if get := op.GetRequestRange(); get == nil || get.Serializable || get.Revision != 0 {
			r.wrong.Store(get)
		}
	}
	if r.refuse.Load() {
		return status.Error(codes.InvalidArgument, "too many operations in txn request")
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

const manyLocks = 40

// holdMany makes the keys of many holders, and returns their tokens.
func holdMany(t *testing.T, client *clientv3.Client) (tokens [manyLocks]fencing.Token) {
	t.Helper()
	for i := range tokens {
		resp, err := client.Put(testContext(t), leases.LockPrefix(leases.DefaultPrefix, fmt.Sprint(i))+"/1", "")
		if err != nil {
			t.Fatalf("put: %v", err)
		}
		tokens[i] = fencing.Token(resp.Header.Revision)
	}
	return tokens
}

// Many questions at once share requests, and each gets its own answer.
func TestAuthority_Verify_Together(t *testing.T) {
	etcd := startEtcd(t)
	tokens := holdMany(t, newClient(t, etcd.Endpoint()))
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("requests for several refused %v", refuse), func(t *testing.T) {
			var r reading
			r.refuse.Store(refuse)
			authority := leases.NewAuthority(newMeddledClient(t, etcd.Endpoint(), r.meddle, nil))
			asked := 0
			for round := range 20 {
				var all errgroup.Group
				for i, token := range tokens {
					asked++
					all.Go(func() error {
						key := fmt.Sprint(i)
						v, err := authority.Verify(testContext(t), key, token+fencing.Token(round%2))
						var refusal *fencing.Error
						switch {
						case round%2 == 0 && (err != nil || v.LockKey != leases.LockPrefix(leases.DefaultPrefix, key)+"/1" || v.Revision < int64(token)):
							return fmt.Errorf("key %s: got %+v, %w", key, v, err)
						case round%2 == 1 && (!errors.As(err, &refusal) || refusal.Code != fencing.CodeNotHolder):
							return fmt.Errorf("key %s, a wrong token: got %v, want not_holder", key, err)
						}
						return nil
					})
				}
				if err := all.Wait(); err != nil {
					t.Error(err)
				}
			}
			if got := r.requests.Load(); r.together.Load() == 0 || !refuse && got >= int64(asked) {
				t.Errorf("got %d requests, %d of them for several, for %d questions", got, r.together.Load(), asked)
			}
			if got := r.wrong.Load(); got != nil {
				t.Errorf("asked %v, want linearizable ranges of the present", got)
			}
		})
	}
}

// However questions are put together, an answer is never older than its question.
func TestAuthority_Verify_TogetherOrder(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	authority := leases.NewAuthority(client)
	var all errgroup.Group
	for i := range 16 {
		all.Go(func() error {
			ctx, key := testContext(t), fmt.Sprint(i%8) // two workers for each lock
			mine := fmt.Sprintf("%s/%x", leases.LockPrefix(leases.DefaultPrefix, key), i)
			for range 25 {
				put, err := client.Put(ctx, mine, "")
				if err != nil {
					return err
				}
				v, err := authority.Verify(ctx, key, fencing.Token(put.Header.Revision))
				if err == nil && v.LockKey != mine {
					return fmt.Errorf("got holder %s, want %s", v.LockKey, mine)
				}
				var refusal *fencing.Error
				if err != nil && (!errors.As(err, &refusal) || refusal.Code != fencing.CodeNotHolder) {
					return err
				}
				gone, err := client.Delete(ctx, mine)
				if err != nil {
					return err
				}
				if _, err := authority.Verify(ctx, key, fencing.Token(put.Header.Revision)); err == nil {
					return fmt.Errorf("%s was deleted at %d, and confirmed later", mine, gone.Header.Revision)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// Requests that etcd doesn't answer hold up no others.
func TestAuthority_Verify_TogetherFrozen(t *testing.T) {
	etcd := startEtcd(t)
	tokens := holdMany(t, newClient(t, etcd.Endpoint()))
	frozen, release := make(chan struct{}, 2), make(chan struct{})
	var seen atomic.Int64
	authority := leases.NewAuthority(newMeddledClient(t, etcd.Endpoint(), func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if seen.Add(1) <= 2 {
			frozen <- struct{}{}
			<-release
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}, nil))
	var all sync.WaitGroup
	verify := func(ctx context.Context, i int) error {
		_, err := authority.Verify(ctx, fmt.Sprint(i), tokens[i])
		return err
	}
	for i := range 2 {
		all.Go(func() {
			if err := verify(testContext(t), i); err != nil {
				t.Errorf("a frozen question, answered at last: %v", err)
			}
		})
		<-frozen
	}
	given, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := verify(given, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a question that is given up: got %v, want %v", err, context.Canceled)
	}
	var others errgroup.Group
	for i := 3; i < manyLocks; i++ {
		others.Go(func() error { return verify(testContext(t), i) })
	}
	if err := others.Wait(); err != nil {
		t.Errorf("beside frozen questions: %v", err)
	}
	close(release)
	all.Wait()
}
