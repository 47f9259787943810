package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A timedAuthority counts what etcd answers to claims, and how fast.
type timedAuthority struct {
	fencing.Authority
	took *prometheus.HistogramVec // result
}

func newTimedAuthority(registry prometheus.Registerer) *timedAuthority {
	a := &timedAuthority{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fenceproxy_etcd_verify_seconds", Help: "How long etcd took to verify a token, by result: confirmed, refused, unavailable.",
			Buckets: claimBuckets(),
		}, []string{"result"}),
	}
	for _, result := range []string{"confirmed", "refused", "unavailable"} {
		a.took.WithLabelValues(result) // so that a rate of the first error is one
	}
	registry.MustRegister(a.took)
	return a
}

// Verify is fencing.Authority's.
func (a *timedAuthority) Verify(ctx context.Context, key string, token fencing.Token) (fencing.Verification, error) {
	began := time.Now()
	v, err := a.Authority.Verify(ctx, key, token)
	result := "confirmed"
	var refused *fencing.Error
	switch {
	case errors.As(err, &refused) && refused.Code != fencing.CodeUnverified:
		result = "refused"
	case err != nil:
		result = "unavailable"
	}
	a.took.WithLabelValues(result).Observe(time.Since(began).Seconds())
	return v, err
}
