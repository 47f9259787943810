package scenario

import (
	"fmt"
	"syscall"
)

// Pause stops the actor's process, as a long garbage collection or a suspended
// virtual machine would. What is sent to it from then on it does when it wakes
// up.
func (a *Actor) Pause() {
	a.tell(KindPause, isPaused)
	a.stop()
}

const isPaused = "is paused (SIGSTOP)"

// stop stops the actor's process, and tells nobody.
func (a *Actor) stop() {
	a.send(syscall.SIGSTOP)
	if a.stage.err == nil {
		a.stage.awaitStop(a.Name, a.cmd.Process.Pid)
	}
}

// Wake lets the actor's process go on.
func (a *Actor) Wake() {
	a.signal(syscall.SIGCONT, KindResume, "wakes up (SIGCONT) and goes on where it was")
}

// Crash kills the actor's process. Nothing of it is answered any more.
func (a *Actor) Crash() { a.signal(syscall.SIGKILL, KindCrash, "crashes (SIGKILL)") }

func (a *Actor) signal(signal syscall.Signal, kind Kind, text string) {
	a.tell(kind, text)
	a.send(signal)
}

func (a *Actor) send(signal syscall.Signal) {
	if a.stage.err != nil {
		return
	}
	if err := a.cmd.Process.Signal(signal); err != nil {
		a.stage.fail(fmt.Errorf("send %v to %s: %w", signal, a.Name, err))
	}
}
