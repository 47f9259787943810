//go:build !linux

package child

import "syscall"

// Attributes puts a process into a group of its own. There is no parent-death
// signal here: a parent that is killed leaves the process running.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
