package scenario

import (
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
// wait for the answer and record what came of it. What makes the play
// impossible fails the Stage; a refusal by PostgreSQL or the proxy is an event
// like others.
type Actor struct {
	Name string

	stage   *Stage
	gate    *Gate
	holds   []Hold // the locks that it got
	session bool   // one is open, or was
	shows   []Hold // what it presents
	pending []Act  // sent and not yet answered
	cmd     *exec.Cmd
	orders  io.WriteCloser
	encoder *json.Encoder
	replies chan Reply
	turns   turns          // of its count, as far as it has told
	told    []fencing.Code // of refused turns that the history has already
}

// hire starts the process of an actor.
func (s *Stage) hire(name string, gate *Gate) (*Actor, error) {
	a := &Actor{Name: name, stage: s, gate: gate, replies: make(chan Reply, 1)}
	etcd := strings.Join(s.Etcd.Endpoints(), ",")
	if gate.Etcd != nil {
		etcd = "http://" + gate.Etcd.Addr()
	}
	a.cmd = exec.Command(s.Command[0], append(s.Command[1:len(s.Command):len(s.Command)],
		"--etcd", etcd, "--lock-prefix", s.Prefix)...)
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
		if r.Turn != nil {
			a.turns.note(*r.Turn)
			continue
		}
		a.replies <- r
	}
}

// dismissTime is how long an actor may take to give its lock back and go.
const dismissTime = 3 * time.Second

// sendHome tells the actor to give its locks back and go, paused or not.
func (a *Actor) sendHome() {
	_ = a.orders.Close()
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
}

// seeOff waits until the actor that was sent home is gone. One that doesn't
// go is killed.
func (a *Actor) seeOff() {
	kill := time.AfterFunc(dismissTime, func() { _ = a.cmd.Process.Kill() })
	defer kill.Stop()
	for range a.replies {
	}
	_ = a.cmd.Wait() // how it ended teaches nothing
}

// Lock takes the lock of key, which is free.
func (a *Actor) Lock(key string) {
	a.askLock(key)
	a.Locked(key)
}

func (a *Actor) askLock(key string) {
	a.order(Order{Verb: VerbLock, Arm: a.stage.Arm, Key: key, TTL: a.stage.TTL, Store: a.stage.Admin})
}

// LineUp sends the actor into the line for key; Locked is its answer.
func (a *Actor) LineUp(key string) {
	a.askLock(key)
	if a.stage.Arm != ArmNone {
		a.record(Event{Kind: KindLine, Text: "waits for the lock"})
	}
}

// Locked waits until the lock that the actor waits for is its own.
func (a *Actor) Locked(key string) {
	r := a.must("lock " + key)
	if a.stage.err != nil || a.stage.Arm == ArmNone {
		return
	}
	a.granted(Hold{key, r.Token})
}

// granted has the actor hold a lock from now on.
func (a *Actor) granted(h Hold) {
	a.holds = append(a.holds, h)
	text := fmt.Sprintf("holds the lock %s with token %d", h.Key, h.Token)
	if a.stage.Arm == ArmExpiring {
		text = fmt.Sprintf("holds the lock %s, as its owner no. %d", h.Key, h.Token)
	}
	a.record(Event{Kind: KindLock, Key: h.Key, Token: h.Token, Text: text})
}

// Release gives the lock back.
func (a *Actor) Release() {
	if a.stage.Arm == ArmNone {
		return
	}
	a.order(Order{Verb: VerbRelease})
	a.must("release the lock")
	a.tell(KindReleased, givesBack)
}

const givesBack = "gives the lock back"

// Drop is Release by a program that doesn't look whether the lock is still
// its own.
func (a *Actor) Drop() {
	a.order(Order{Verb: VerbDrop})
	a.must("drop the lock")
	a.tell(KindReleased, "is done, and removes the lock")
}

// StandInLine puts the actor into the line for key by a lease that it renews
// or not, and returns its place: the number that will be its token.
func (a *Actor) StandInLine(key string, renew bool) Hold {
	a.order(Order{Verb: VerbQueue, Key: key, TTL: a.stage.TTL, Renew: renew})
	h := Hold{key, a.must("stand in line for " + key).Token}
	a.record(Event{Kind: KindLine, Text: fmt.Sprintf("stands in line for the lock, with number %d", h.Token)})
	return h
}

// Connect opens the actor's session, which presents its locks. That they are
// refused is an event.
func (a *Actor) Connect() {
	a.session, a.shows = true, a.holds
	if !a.stage.Arm.tags() {
		a.connect(nil, "connects")
		return
	}
	a.connect(a.holds, a.connects())
}

// connects tells of a session that presents the actor's locks.
func (a *Actor) connects() string {
	texts := make([]string, len(a.holds))
	for i, h := range a.holds {
		texts[i] = fmt.Sprintf("%s token %d", h.Key, h.Token)
	}
	return "connects, tagged " + strings.Join(texts, " and ")
}

// ConnectWith is Connect by a program that presents other numbers than those
// that it got.
func (a *Actor) ConnectWith(story string, holds ...Hold) {
	a.session, a.shows = true, holds
	a.connect(holds, "connects"+story)
}

func (a *Actor) connect(tag []Hold, text string) {
	a.order(Order{Verb: VerbConnect, DSN: a.gate.DSN, Tag: tag, Name: a.Name})
	r := a.must("connect")
	if r.Warning == "" {
		a.tell(KindConnected, text)
		return
	}
	a.tellRefusal(Reply{Code: r.WarningCode, Error: r.Warning}, text)
}

// Held has the actor look whether its lock is its own, as careful programs
// do before they write.
func (a *Actor) Held() {
	if a.stage.Arm == ArmNone {
		return
	}
	a.order(Order{Verb: VerbHeld})
	r := a.must("look at its lock")
	if a.stage.err == nil && !r.Held {
		a.stage.fail(fmt.Errorf("%s lost its lock too early", a.Name))
	}
	a.tell(KindHeld, "looks: the lock is its own, so it may write")
}

// TakeOver has the actor become the holder, connect, and run acts.
func (a *Actor) TakeOver(key string, acts ...Act) {
	a.Lock(key)
	a.Connect()
	a.Do(acts...)
}

// Do has the actor run statements, one after the other, and returns what the
// last one was answered.
func (a *Actor) Do(acts ...Act) (last Reply) {
	for _, act := range acts {
		a.Send(act)
		last = a.Answer()
	}
	return last
}

// UntilRefused has the actor run a statement again and again until it is
// refused, and tells of the last time only.
func (a *Actor) UntilRefused(act Act) {
	var last Reply
	a.stage.Await(a.Name+" to be refused", func() (bool, error) {
		a.order(Order{Verb: act.Verb, SQL: act.SQL, Args: act.Args})
		last = a.receive()
		return last.Error != "", nil
	})
	if a.stage.err == nil {
		a.tellRefusal(last, act.Story)
	}
}

// Send gives the order to run a statement and doesn't wait: a paused actor
// carries it out when it wakes up.
func (a *Actor) Send(act Act) {
	a.pending = append(a.pending, act)
	a.order(Order{Verb: act.Verb, SQL: act.SQL, Args: act.Args, Batch: act.Batch})
}

// Answer waits for the answer to the first Send that had none yet.
func (a *Actor) Answer() Reply {
	act := a.pending[0]
	a.pending = a.pending[1:]
	r := a.receive()
	switch {
	case a.stage.err != nil:
	case r.Error == "" && act.Kind == KindRead:
		a.tell(KindRead, act.Story+": "+found(r.Rows))
	case r.Error == "":
		a.tell(act.Kind, act.Story)
	default:
		a.tellRefusal(r, act.Story)
	}
	return r
}

// tellRefusal records that something that the actor did was answered with an
// error.
func (a *Actor) tellRefusal(r Reply, story string) {
	e := a.presented(Event{Kind: KindFailed, Code: r.Code, Text: r.Error, Story: story})
	if strings.HasPrefix(string(r.Code), "LF") {
		e.Kind = KindRefused
	}
	a.record(e)
}

// hold is the actor's first lock, if the play has come that far.
func (a *Actor) hold() Hold {
	if len(a.holds) == 0 {
		return Hold{}
	}
	return a.holds[0]
}

// last is the actor's last lock, if the play has come that far.
func (a *Actor) last() Hold {
	if len(a.holds) == 0 {
		return Hold{}
	}
	return a.holds[len(a.holds)-1]
}

// tell records that the actor did something with what it presents.
func (a *Actor) tell(kind Kind, text string) { a.record(a.presented(Event{Kind: kind, Text: text})) }

func (a *Actor) presented(e Event) Event {
	shown := a.holds
	if a.session {
		shown = a.shows
	}
	if len(shown) > 0 {
		e.Key, e.Token, e.Also = shown[0].Key, shown[0].Token, shown[1:]
	}
	return e
}

func (a *Actor) record(e Event) {
	e.Actor, e.Via = a.Name, a.gate.Name
	a.stage.record(e)
}

func (a *Actor) order(o Order) {
	if a.stage.err != nil {
		return
	}
	if err := a.encoder.Encode(o); err != nil {
		a.stage.fail(fmt.Errorf("order %s to %s: %w", a.Name, o.Verb, err))
	}
}

func (a *Actor) receive() Reply { return a.receiveWithin(replyTimeout + 5*time.Second) }

func (a *Actor) receiveWithin(timeout time.Duration) Reply {
	if a.stage.err != nil {
		return Reply{}
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case r, ok := <-a.replies:
		if !ok {
			a.stage.fail(fmt.Errorf("the process of %s ended", a.Name))
			return Reply{}
		}
		return r
	case <-late.C:
		a.stage.fail(fmt.Errorf("%s doesn't answer", a.Name))
	case <-a.stage.ctx.Done():
		a.stage.fail(fmt.Errorf("wait for %s: %w", a.Name, a.stage.ctx.Err()))
	}
	return Reply{}
}

// must is receive for orders that a story can't do without.
func (a *Actor) must(what string) Reply {
	r := a.receive()
	if a.stage.err == nil && r.Error != "" {
		a.stage.fail(fmt.Errorf("%s: %s: %w", a.Name, what, errors.New(r.Error)))
	}
	return r
}

// foundMost is how many rows of a read are told.
const foundMost = 6

// found tells rows in one line.
func found(rows [][]string) string {
	if len(rows) == 0 {
		return "nothing"
	}
	texts := make([]string, 0, foundMost)
	for i, row := range rows {
		if i == foundMost {
			texts = append(texts, "…")
			break
		}
		texts = append(texts, strings.Join(row, ", "))
	}
	return strings.Join(texts, "; ")
}

// column is the first column of a reply's rows.
func (r Reply) column() []string {
	values := make([]string, len(r.Rows))
	for i, row := range r.Rows {
		values[i] = row[0]
	}
	return values
}

// value is the first column of a reply's only row.
func (r Reply) value() string {
	if len(r.Rows) == 0 {
		return ""
	}
	return r.Rows[0][0]
}
