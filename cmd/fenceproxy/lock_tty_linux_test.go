package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/testharness/etcdtest"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// terminal is a pseudo-terminal with the program in its foreground.
type terminal struct {
	master *os.File
	screen output
	proc   *exec.Cmd
	done   chan struct{}
}

// onTerminal runs the program as a shell would on a terminal of its own.
func onTerminal(t testing.TB, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return showOnTerminal(t, cmd)
}

// showOnTerminal starts a command on a terminal of its own.
func showOnTerminal(t testing.TB, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, proc: cmd, done: make(chan struct{})}
	term.proc.Stdin, term.proc.Stdout, term.proc.Stderr = slave, slave, slave
	term.proc.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.proc.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go term.read()
	t.Cleanup(func() {
		_ = term.proc.Process.Kill()
		<-term.done
		master.Close()
	})
	return term
}

// read fills the screen until nobody has the terminal open any more.
func (term *terminal) read() {
	defer close(term.done)
	buf := make([]byte, 1024)
	for {
		n, err := term.master.Read(buf)
		_, _ = term.screen.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

func (term *terminal) shows(t testing.TB, text string) {
	t.Helper()
	poll.Until(t, text, func() bool { return strings.Contains(term.screen.String(), text) })
}

func (term *terminal) enter(t testing.TB, text string) {
	t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func (term *terminal) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-term.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("it did not end; the terminal shows\n%s", term.screen.String())
	}
	_ = term.proc.Wait()
	return term.proc.ProcessState.ExitCode()
}

// An interactive command, such as psql, reads from the terminal.
func TestLock_CommandHasTheTerminal(t *testing.T) {
	etcd := etcdtest.New(t)
	term := onTerminal(t, lockArgs(etcd, "job:1", "--", "sh", "-c", `echo ready; read line; echo "got <$line>"`)...)
	term.shows(t, "ready")
	term.enter(t, "hello\n")
	term.shows(t, "got <hello>")
	if code := term.wait(t); code != 0 {
		t.Errorf("got exit %d", code)
	}
}

// Ctrl-C is the command's; Ctrl-Z doesn't leave it suspended with the lock.
func TestLock_TerminalKeys(t *testing.T) {
	etcd := etcdtest.New(t)
	script := `trap 'echo interrupted' INT; echo ready; while read line; do echo "got <$line>"; done; exit 9`
	term := onTerminal(t, lockArgs(etcd, "job:1", "--", "bash", "-c", script)...)
	term.shows(t, "ready")
	term.enter(t, "\x1a")
	term.enter(t, "after\n")
	term.shows(t, "got <after>")
	term.enter(t, "\x03")
	term.shows(t, "interrupted")
	term.enter(t, "\x04")
	if code := term.wait(t); code != 9 {
		t.Errorf("got exit %d, want the command's own 9", code)
	}
}
