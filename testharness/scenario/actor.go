package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/testharness/child"
)

// An Actor is a worker in a process of its own. Its methods give it an order,
// wait for the answer and record what came of it. An error means that the
// story can't go on; a refusal by PostgreSQL or the proxy is no error but an
// event.
type Actor struct {
	Name string

	stage   *Stage
	gate    string
	key     string
	token   fencing.Token
	cmd     *exec.Cmd
	orders  io.WriteCloser
	encoder *json.Encoder
	replies chan Reply
}

// An Act is a statement that an actor runs, and how the history tells it.
type Act struct {
	Verb  Verb // VerbExec or VerbSimple
	SQL   string
	Args  []string
	Kind  Kind   // of the event if it succeeds
	Story string // what the statement is in the story
}

// hire starts the process of an actor.
func (s *Stage) hire(name, gate string) (*Actor, error) {
	a := &Actor{Name: name, stage: s, gate: gate, replies: make(chan Reply, 1)}
	a.cmd = exec.Command(s.Command[0], append(s.Command[1:len(s.Command):len(s.Command)],
		"--etcd", strings.Join(s.Etcd.Endpoints(), ","), "--lock-prefix", s.Prefix)...)
	a.cmd.Stderr = os.Stderr
	a.cmd.SysProcAttr = child.Attributes()
	orders, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("hire %s: %w", name, err)
	}
	replies, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("hire %s: %w", name, err)
	}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("hire %s: %w", name, err)
	}
	a.orders, a.encoder = orders, json.NewEncoder(orders)
	go a.listen(replies)
	return a, nil
}

// listen passes replies on until the process ends, which closes the pipe.
func (a *Actor) listen(from io.Reader) {
	defer close(a.replies)
	decoder := json.NewDecoder(from)
	for {
		var r Reply
		if decoder.Decode(&r) != nil {
			return
		}
		a.replies <- r
	}
}

// dismissTime is how long an actor may take to give its lock back and go.
const dismissTime = 3 * time.Second

// dismiss sends the actor home, paused or not; it gives its lock back. One
// that doesn't go is killed.
func (a *Actor) dismiss() {
	_ = a.orders.Close()
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	kill := time.AfterFunc(dismissTime, func() { _ = a.cmd.Process.Kill() })
	defer kill.Stop()
	for range a.replies {
	}
	_ = a.cmd.Wait() // how it ended teaches nothing
}

// Lock waits in line for the lock of key.
func (a *Actor) Lock(ctx context.Context, key string) error {
	if err := a.LineUp(key); err != nil {
		return err
	}
	return a.Locked(ctx, key)
}

// LineUp sends the actor into the line for key; Locked is its answer.
func (a *Actor) LineUp(key string) error {
	return a.send(Order{Verb: VerbLock, Key: key, TTL: a.stage.TTL})
}

// Locked waits until the lock for which the actor stands in line is its own.
func (a *Actor) Locked(ctx context.Context, key string) error {
	r, err := a.must(ctx, "lock "+key)
	if err != nil {
		return err
	}
	a.key, a.token = key, r.Token
	a.record(KindLock, fmt.Sprintf("holds the lock %s with token %d", key, a.token))
	return nil
}

// Connect opens the actor's session, which presents its lock.
func (a *Actor) Connect(ctx context.Context) error {
	if err := a.send(Order{Verb: VerbConnect, DSN: a.gate}); err != nil {
		return err
	}
	r, err := a.must(ctx, "connect")
	if err != nil {
		return err
	}
	if r.Warning != "" {
		return fmt.Errorf("%s: connect: %s", a.Name, r.Warning)
	}
	a.record(KindConnected, fmt.Sprintf("connects, tagged %s token %d", a.key, a.token))
	return nil
}

// Held has the actor look whether its lock is its own, as careful programs
// do before they write.
func (a *Actor) Held(ctx context.Context) error {
	if err := a.send(Order{Verb: VerbHeld}); err != nil {
		return err
	}
	r, err := a.must(ctx, "look at its lock")
	if err != nil {
		return err
	}
	if !r.Held {
		return fmt.Errorf("%s lost its lock too early", a.Name)
	}
	a.record(KindHeld, "looks: the lock is its own, so it may write")
	return nil
}

// Do has the actor run a statement and waits for its end.
func (a *Actor) Do(ctx context.Context, act Act) (Reply, error) {
	if err := a.Begin(act); err != nil {
		return Reply{}, err
	}
	return a.End(ctx, act)
}

// Begin gives the order to run a statement and doesn't wait: a paused actor
// carries it out when it wakes up.
func (a *Actor) Begin(act Act) error {
	return a.send(Order{Verb: act.Verb, SQL: act.SQL, Args: act.Args})
}

// End waits for the answer to Begin.
func (a *Actor) End(ctx context.Context, act Act) (Reply, error) {
	r, err := a.receive(ctx)
	if err != nil {
		return r, err
	}
	switch {
	case r.Error == "" && len(r.Rows) > 0:
		a.record(act.Kind, fmt.Sprintf("%s: %s", act.Story, rowText(r.Rows[0])))
	case r.Error == "":
		a.record(act.Kind, act.Story)
	case strings.HasPrefix(string(r.Code), "LF"):
		a.stage.History.Record(Event{Actor: a.Name, Kind: KindRefused, Key: a.key, Token: a.token, Code: r.Code,
			Text: r.Error, Story: act.Story})
	default:
		a.stage.History.Record(Event{Actor: a.Name, Kind: KindFailed, Key: a.key, Token: a.token, Code: r.Code,
			Text: r.Error, Story: act.Story})
	}
	return r, nil
}

// Pause stops the actor's process, as a long garbage collection or a suspended
// virtual machine would.
func (a *Actor) Pause() error {
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause %s: %w", a.Name, err)
	}
	a.record(KindPause, "is paused (SIGSTOP)")
	return nil
}

// Resume lets the actor's process go on.
func (a *Actor) Resume() error {
	a.record(KindResume, "wakes up (SIGCONT) and goes on where it was")
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake %s: %w", a.Name, err)
	}
	return nil
}

func (a *Actor) record(kind Kind, text string) {
	a.stage.History.Record(Event{Actor: a.Name, Kind: kind, Key: a.key, Token: a.token, Text: text})
}

func (a *Actor) send(o Order) error {
	if err := a.encoder.Encode(o); err != nil {
		return fmt.Errorf("order %s to %s: %w", a.Name, o.Verb, err)
	}
	return nil
}

func (a *Actor) receive(ctx context.Context) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout+5*time.Second)
	defer cancel()
	select {
	case r, ok := <-a.replies:
		if !ok {
			return r, fmt.Errorf("the process of %s ended", a.Name)
		}
		return r, nil
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("wait for %s: %w", a.Name, context.Cause(ctx))
	}
}

// must is receive for orders that a story can't do without.
func (a *Actor) must(ctx context.Context, what string) (Reply, error) {
	r, err := a.receive(ctx)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %s: %w", a.Name, what, err)
	}
	return r, nil
}

func rowText(row []string) string { return strings.Join(row, ", ") }
