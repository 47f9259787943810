package main

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
)

// How long a look at what must answer may take, and how long there is none behind it.
// Both together are below the second that Kubernetes gives a probe.
const (
	lookWithin = 800 * time.Millisecond
	lookPause  = 100 * time.Millisecond
)

// A probe is one thing that must answer for the proxy to be ready. Whoever reaches the
// admin port may ask for it, and a look costs PostgreSQL a login: so there is one look
// at a time, for all who ask meanwhile, and a pause behind each.
type probe struct {
	name  string
	look  func(context.Context) error
	pause time.Duration // lookPause

	looks singleflight.Group
	ended time.Time       // of the last look
	ctx   context.Context // of all looks, which are no one asker's
	close context.CancelFunc
}

func newProbe(name string, look func(context.Context) error) *probe {
	p := &probe{name: name, look: look, pause: lookPause}
	p.ctx, p.close = context.WithCancel(context.Background())
	return p
}

// ask returns at once; what a look finds comes through the channel.
func (p *probe) ask() <-chan singleflight.Result {
	return p.looks.DoChan("", func() (any, error) { return nil, p.once() })
}

// once waits for the end of the pause, and looks.
func (p *probe) once() error {
	defer func() { p.ended = time.Now() }()
	pause := time.NewTimer(time.Until(p.ended.Add(p.pause)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(p.ctx, lookWithin)
	defer cancel()
	return p.look(ctx)
}
