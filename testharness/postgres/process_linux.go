package postgres

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// attributes runs the server as the credential's user, in a process group of
// its own (a Ctrl-C at the parent's terminal is the parent's to handle), and
// has the kernel shut it down if the parent dies. Go sets the death signal
// after the credential, whose change would clear it.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}

// children returns the ids of a process's children.
func children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails on a malformed pattern only
	var out []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …, and the name may hold anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
