package scenario

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/fenceproxy/fenceproxy/testharness/fault"
)

// A Gate is where actors connect.
type Gate struct {
	Name string // of the proxy, LaneProxy and a number; "" if it is PostgreSQL itself
	DSN  string
	Etcd *fault.Link // how those at the gate reach etcd: its workers and its proxy

	Proxy   Process                                // what can be broken; nil if it is PostgreSQL itself
	Restart func(context.Context) (Process, error) // starts a Proxy that was killed, at the same address
}

// A Process is one that can be paused and killed.
type Process interface {
	PID() int
	Signal(os.Signal) error
	Kill()
}

// PauseProxy stops the proxy that the actor's session goes through. Where
// there is none, it is the actor itself that is paused.
func (a *Actor) PauseProxy() {
	if a.gate.Proxy == nil {
		a.Pause()
		return
	}
	a.signalProxy(syscall.SIGSTOP, KindPause, "is paused (SIGSTOP)")
	a.stage.awaitStop(a.gate.Name, a.gate.Proxy.PID())
}

// WakeProxy undoes PauseProxy.
func (a *Actor) WakeProxy() {
	if a.gate.Proxy == nil {
		a.Wake()
		return
	}
	a.signalProxy(syscall.SIGCONT, KindResume, "wakes up (SIGCONT) and goes on where it was")
}

// CrashProxy kills the proxy that the actor's session goes through, and
// starts another one in its place, which has no memory. Where there is none,
// nothing happens.
func (a *Actor) CrashProxy() {
	if a.gate.Proxy == nil || a.stage.err != nil {
		return
	}
	a.gate.Proxy.Kill()
	a.stage.record(Event{Actor: a.gate.Name, Kind: KindCrash, Text: "is killed (SIGKILL)"})
	p, err := a.gate.Restart(a.stage.ctx)
	if err != nil {
		a.stage.fail(fmt.Errorf("restart %s: %w", a.gate.Name, err))
		return
	}
	a.gate.Proxy = p
	a.stage.record(Event{Actor: a.gate.Name, Kind: KindResume, Text: "is started again, and remembers nothing"})
}

func (a *Actor) signalProxy(signal syscall.Signal, kind Kind, text string) {
	a.stage.record(Event{Actor: a.gate.Name, Kind: kind, Text: text})
	if a.stage.err != nil {
		return
	}
	if err := a.gate.Proxy.Signal(signal); err != nil {
		a.stage.fail(fmt.Errorf("send %v to %s: %w", signal, a.gate.Name, err))
	}
}

// CutOff cuts the machine of the actor, and of the proxy that its session
// goes through, off from etcd.
func (a *Actor) CutOff() {
	a.link(fault.Cut, KindFault, "cut off from etcd")
}

// Join undoes CutOff.
func (a *Actor) Join() { a.link(fault.Open, KindHeal, "reached by etcd again") }

func (a *Actor) link(mode fault.Mode, kind Kind, text string) {
	if a.stage.err != nil {
		return
	}
	a.gate.Etcd.Set(mode)
	who := a.Name + "'s machine is "
	if a.gate.Name != "" {
		who = a.Name + "'s machine, with " + a.gate.Name + ", is "
	}
	a.stage.record(Event{Actor: LaneEtcd, Kind: kind, Text: who + text})
}
