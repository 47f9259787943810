//go:build !linux

package postgres

import "syscall"

// attributes runs the server as the credential's user in a process group of
// its own. There is no parent-death signal here: a parent that is killed
// leaves the server running.
func attributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true}
}

// children can't be told without /proc. Backends end by themselves soon after
// their postmaster, so Kill is a little less sudden here.
func children(int) []int { return nil }
