package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/fenceproxy/fenceproxy/proxy/dashboard"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// However many ask, PostgreSQL is logged in to once at a time; one who leaves takes the
// answer from nobody.
func TestProbe_OneLookForAll(t *testing.T) {
	var looks atomic.Int32
	answer := make(chan struct{})
	p := newProbe("upstream", func(ctx context.Context) error {
		looks.Add(1)
		select {
		case <-answer:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	a := newAdmin(prometheus.NewRegistry(), dashboard.New(nil, nil), nil, p)
	defer a.close()
	server := httptest.NewServer(a.server.Handler)
	defer server.Close()

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/readyz", nil)
		if err == nil {
			_, err = http.DefaultClient.Do(r)
		}
		left <- err
	}()
	poll.Until(t, "the first look", func() bool { return looks.Load() == 1 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that leaves: got %v", err)
	}
	var all []<-chan singleflight.Result
	for range 100 {
		all = append(all, p.ask())
	}
	close(answer)
	for _, one := range all {
		if got := <-one; got.Err != nil {
			t.Errorf("one who asked meanwhile: got %v, want that it answers", got.Err)
		}
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("got %d looks, want 1 for all", n)
	}
}

// Who asks again and again doesn't have it looked at without a pause.
func TestProbe_Pause(t *testing.T) {
	var looks atomic.Int32
	p := newProbe("upstream", func(context.Context) error { looks.Add(1); return nil })
	p.pause = time.Hour
	if got := <-p.ask(); got.Err != nil {
		t.Fatal(got.Err)
	}
	again := p.ask()
	p.close()
	if got := <-again; !errors.Is(got.Err, context.Canceled) || looks.Load() != 1 {
		t.Errorf("within the pause: got %v, %d looks, want none", got.Err, looks.Load())
	}
}
