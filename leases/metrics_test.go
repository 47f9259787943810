package leases_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
)

// What becomes of a lock, and the samples that tell of it.
func TestMetrics_Move(t *testing.T) {
	etcd := startEtcd(t)
	client := newClient(t, etcd.Endpoint())
	locker, metrics := leases.NewLocker(client), leases.NewMetrics()
	locker.Metrics = metrics

	check := func(what string, want map[string]float64) {
		t.Helper()
		poll(t, what, func() bool {
			got := samples.Of(t, metrics)
			for name, n := range want {
				if got[name] != n {
					return false
				}
			}
			return true
		})
	}
	first := acquire(t, locker, "k")
	check("a free lock", map[string]float64{"lock_acquisitions_total acquired": 1, "lock_acquisition_seconds acquired": 1, "lock_contended_total": 0})
	if _, err := locker.TryAcquire(testContext(t), "k"); !errors.Is(err, leases.ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
	check("one that is taken", map[string]float64{"lock_acquisitions_total acquired": 1, "lock_acquisitions_total taken": 1, "lock_contended_total": 1})
	waiting := acquireLater(t, testContext(t), locker, client, "k", 2)
	if err := first.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
	second := wait(t, "the lock", waiting).lease
	check("one that was waited for", map[string]float64{"lock_acquisitions_total acquired": 2, "lock_contended_total": 2, "lock_expirations_total": 0})
	revoke(t, client, second.ID())
	check("one that was lost", map[string]float64{"lock_expirations_total": 1})
	if _, err := locker.TryAcquire(testContext(t), ""); !errors.Is(err, leases.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := locker.TryAcquire(ended, "other"); err == nil {
		t.Fatal("got a lock under a context that had ended")
	}
	check("what was no attempt", map[string]float64{"lock_acquisitions_total invalid": 1, "lock_acquisitions_total given_up": 1, "lock_contended_total": 2})
}

// Renewals are counted, and the lost lock of an etcd that is gone.
func TestMetrics_Renewals(t *testing.T) {
	etcd := startEtcd(t)
	relay := startRelay(t, etcd.Endpoint())
	locker, metrics := leases.NewLocker(newClient(t, relay.Endpoint())), leases.NewMetrics()
	locker.Metrics, locker.TTL = metrics, 2e9
	acquire(t, locker, "k")
	poll(t, "a renewal", func() bool { return samples.Of(t, metrics)["lock_renewals_total renewed"] > 0 })
	if got := samples.Of(t, metrics)["lock_renewals_total failed"]; got != 0 {
		t.Errorf("failed: got %v, want 0", got)
	}
	relay.Cut()
	poll(t, "a failed renewal, and the lock's loss", func() bool {
		got := samples.Of(t, metrics)
		return got["lock_renewals_total failed"] > 0 && got["lock_expirations_total"] == 1
	})
	relay.Mend()
}
