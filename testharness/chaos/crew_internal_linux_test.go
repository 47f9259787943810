package chaos

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A worker that is to be killed, and has ended before, wasn't killed.
func TestCrew_KillEndedBefore(t *testing.T) {
	for script, want := range map[string]string{
		"exit 3":        "it had ended by itself: exit status 3",
		"exit 0":        "it had ended by itself: exit status 0",
		"kill -TERM $$": "it had ended by itself: signal: terminated",
		"exec sleep 60": "",
	} {
		t.Run(script, func(t *testing.T) {
			h := &hand{cmd: exec.Command("sh", "-c", script), heard: make(chan struct{})}
			close(h.heard)
			in, err := h.cmd.StdinPipe()
			if err == nil {
				h.in, err = in, h.cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if want != "" { // it is left for Wait
				if err := unix.Waitid(unix.P_PID, h.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			if _, err := (&crew{workers: []*hand{h}}).kill(t.Context(), workerName(0)); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
