package postgres

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// backupWaitDelay is how long a copy that was broken off may take to end.
const backupWaitDelay = time.Second

// backup copies the data folder of a running server, so that the copy starts
// as a standby that streams from it.
func (s *Server) backup(ctx context.Context, primary *Server) error {
	cmd := exec.CommandContext(ctx, s.Program("pg_basebackup"), "-D", s.DataDir(), "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-d", "host=127.0.0.1 user="+Superuser+" application_name="+StandbyName, "-p", fmt.Sprint(primary.port))
	// The child that fetches the log holds its output open, and outlives it.
	cmd.WaitDelay = backupWaitDelay
	cmd.Dir = s.base
	cmd.Env = append(environment(), "PGPASSWORD="+primary.options.Password)
	if err := s.finish(ctx, cmd, "copy the primary"); err != nil {
		return err
	}
	return s.streamFrom()
}

// streamFrom has the standby stream from where the options say. pg_basebackup
// has written the primary's own address to the file that wins over
// postgresql.conf; of two lines there the later one counts.
func (s *Server) streamFrom() error {
	if s.options.StreamFrom == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.options.StreamFrom)
	if err != nil {
		return fmt.Errorf("find where to stream from: %w", err)
	}
	return appendTo(filepath.Join(s.DataDir(), "postgresql.auto.conf"), fmt.Sprintf(
		"primary_conninfo = 'host=%s port=%s user=%s password=%s application_name=%s'\n",
		host, port, Superuser, s.options.Password, StandbyName))
}

// StandbyName is the application_name of a standby's connection to its primary,
// for synchronous_standby_names.
const StandbyName = "standby"

// Promote makes a standby the primary, whatever became of the one before, and
// returns when it takes writes.
func (s *Server) Promote(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.Program("pg_ctl"), "promote", "-D", s.DataDir(), "-w")
	cmd.Dir, cmd.Env = s.base, environment()
	return s.finish(ctx, cmd, "promote the standby")
}

// Pause stops the postmaster and all that it has started, as a machine that
// hangs would: connections are taken by the kernel, and nothing answers. Resume,
// Stop and Kill end it.
func (s *Server) Pause() { s.process.signalAll(syscall.SIGSTOP) }

// Resume wakes a paused server.
func (s *Server) Resume() { s.process.signalAll(syscall.SIGCONT) }
