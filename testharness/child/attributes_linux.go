package child

import "syscall"

// Attributes puts a process into a group of its own and has the kernel kill
// it, paused or not, when this process dies.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
