package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// A Record is one line of a file: one of its fields is set. An operation that
// has ended stands there twice, and the later line counts.
type Record struct {
	Op     *Op        `json:"op,omitempty"`
	Lock   *LockEvent `json:"lock,omitempty"`
	Glance *Glance    `json:"glance,omitempty"`
	Fault  *Fault     `json:"fault,omitempty"`
	Marks  *MarksSeen `json:"marks,omitempty"`
	Tables *Tables    `json:"tables,omitempty"`
}

// A Recorder writes a history. Each record is one write, so that a process
// that is killed leaves whole lines behind, but for the last perhaps. Safe for
// concurrent use.
type Recorder struct {
	worker string

	mu  sync.Mutex
	to  io.Writer
	seq int64
	err error
}

// NewRecorder returns a Recorder of what a worker does, "" for the harness.
// Names of workers must be unique in a run, over restarts too.
func NewRecorder(worker string, to io.Writer) *Recorder { return &Recorder{worker: worker, to: to} }

// Begin records that an operation is about to begin: it sets the operation's
// name and Invoke.
func (r *Recorder) Begin(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	op.Worker, op.Seq, op.Invoke = r.worker, r.seq, Now()
	r.writeLocked(Record{Op: op})
}

// End records an operation's answer, or that none is waited for any more: it
// sets Return.
func (r *Recorder) End(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Return = Now()
	r.writeLocked(Record{Op: op})
}

// Add records anything else.
func (r *Recorder) Add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeLocked(record)
}

func (r *Recorder) writeLocked(record Record) {
	text, err := json.Marshal(record)
	if err == nil {
		_, err = r.to.Write(append(text, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("record history: %w", err)
	}
}

// Err returns the first error of all that was recorded. A history that it is
// not nil for is worth nothing.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
