package postgres

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"
)

// backup copies the data folder of a running server, so that the copy starts
// as a standby that streams from it.
func (s *Server) backup(ctx context.Context, primary *Server) error {
	cmd := exec.CommandContext(ctx, s.Program("pg_basebackup"), "-D", s.DataDir(), "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-d", "host=127.0.0.1 user="+Superuser+" application_name=standby", "-p", fmt.Sprint(primary.port))
	cmd.Dir = s.base
	cmd.Env = append(environment(), "PGPASSWORD="+primary.options.Password)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner.credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the primary: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Promote makes a standby the primary, whatever became of the one before, and
// returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.Program("pg_ctl"), "promote", "-D", s.DataDir(), "-w")
	cmd.Dir, cmd.Env = s.base, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner.credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("promote the standby: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Pause stops the postmaster and all that it has started, as a machine that
// hangs would: connections are taken by the kernel, and nothing answers. Resume,
// Stop and Kill end it.
func (s *Server) Pause() { s.process.signalAll(syscall.SIGSTOP) }

// Resume wakes a paused server.
func (s *Server) Resume() { s.process.signalAll(syscall.SIGCONT) }
