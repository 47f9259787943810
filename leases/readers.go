package leases

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// readsTogether bounds what is put into one request. etcd takes 128 reads
	// unless told otherwise; where it takes fewer, each is sent by itself.
	readsTogether = 64
	// readPatience is how long a read waits for the request before it: longer
	// than an etcd that is well takes, and short beside a claim's time. A member
	// that is frozen must not hold up what another one would answer.
	readPatience = 20 * time.Millisecond
)

// A readers reads the lines of locks for many callers. What is asked while a
// request is under way goes into one request after it, and etcd answers it at
// one revision; its own linearizable reads wait for one another in that way too.
// A read is only ever part of a request that is sent after it was asked for, so
// it is as linearizable as one that is sent alone.
//
// One of the callers sends the request, for all of them.
type readers struct {
	client *clientv3.Client

	mu       sync.Mutex
	underWay int     // requests; more than one where patience ended
	waiting  []*read // by when they came
}

// A read is what one caller asks.
type read struct {
	lockPrefix string
	// told is closed when the read was answered or its caller is to send a
	// request; the fields below are settled then.
	told  chan struct{}
	batch []*read // what its caller is to send, itself first
	line  *queue  // nil if the request failed
}

// read reads the line for the lock at lockPrefix in one linearizable range.
func (r *readers) read(ctx context.Context, lockPrefix string) (*queue, error) {
	mine := &read{lockPrefix: lockPrefix, told: make(chan struct{})}
	batch := r.enter(mine)
	if batch == nil {
		batch = r.await(ctx, mine)
	}
	switch {
	case len(batch) == 1:
		defer r.leave()
		return readQueue(ctx, r.client, lockPrefix)
	case len(batch) > 1:
		r.send(ctx, batch)
	case ctx.Err() != nil:
		return nil, ctx.Err() // perhaps it is under way still
	}
	if mine.line != nil {
		return mine.line, nil
	}
	// Whatever the request met, each read now tries by itself: the etcd client
	// repeats that, which it doesn't do for many, and its error is this read's.
	return readQueue(ctx, r.client, lockPrefix)
}

// enter returns what the caller is to send at once, or nil when it has to wait.
func (r *readers) enter(mine *read) []*read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay == 0 {
		r.underWay++
		return []*read{mine}
	}
	r.waiting = append(r.waiting, mine)
	return nil
}

// await waits until mine was answered, and returns nil, or until it is the
// caller's turn to send what it returns.
func (r *readers) await(ctx context.Context, mine *read) []*read {
	patience := time.NewTimer(readPatience)
	defer patience.Stop()
	select {
	case <-mine.told:
		return mine.batch
	case <-patience.C:
		if batch := r.overtake(mine); batch != nil {
			return batch
		}
	case <-ctx.Done():
	}
	select {
	case <-mine.told:
		return mine.batch
	case <-ctx.Done():
		return r.giveUp(mine)
	}
}

// overtake takes mine out of those that wait, and others with it, to be sent
// beside the requests that are under way. It returns nil if mine is part of one.
func (r *readers) overtake(mine *read) []*read {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.waiting, mine)
	if at < 0 {
		return nil
	}
	r.waiting = append([]*read{mine}, slices.Delete(r.waiting, at, at+1)...)
	r.underWay++
	return r.takeLocked()
}

// giveUp returns what others were promised that mine's caller sends, if they
// were; that fails now, and each of them tries by itself.
func (r *readers) giveUp(mine *read) []*read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.Index(r.waiting, mine); at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
		return nil
	}
	return mine.batch
}

// takeLocked takes the next request's reads out of those that wait.
func (r *readers) takeLocked() []*read {
	n := min(len(r.waiting), readsTogether)
	batch := slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	return batch
}

// leave is called after each request. The first of those that wait sends the
// next one.
func (r *readers) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay--
	if len(r.waiting) == 0 || r.underWay > 0 {
		return
	}
	r.underWay++
	batch := r.takeLocked()
	batch[0].batch = batch
	close(batch[0].told)
}

// send sends one request for all of batch, and tells the others.
func (r *readers) send(ctx context.Context, batch []*read) {
	defer r.leave()
	prefixes := make([]string, len(batch))
	for i, one := range batch {
		prefixes[i] = one.lockPrefix
	}
	lines, err := readQueues(ctx, r.client, prefixes)
	for i, one := range batch {
		if err == nil {
			one.line = lines[i]
		}
		if i > 0 {
			close(one.told)
		}
	}
}
