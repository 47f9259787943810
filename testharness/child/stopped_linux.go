package child

import (
	"bytes"
	"fmt"
	"os"
)

// Stopped says whether all threads of a process have stopped after a SIGSTOP,
// which takes effect a moment after it was sent.
func Stopped(pid int) (bool, error) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(tasks + "/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// proc(5): the state follows the name, which is in brackets and may
		// hold any character.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(state) > 0 && state[0] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
