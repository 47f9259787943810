package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// stopMargin is what stopping may take beyond --drain-timeout: sessions that
// are cut off are told so, and an embedded etcd is closed.
const stopMargin = 10 * time.Second

// supervisor is the service manager that started this process and wants to be
// told how it is, as sd_notify(3) describes. Without one it is told nothing.
type supervisor struct {
	server *proxy.Server
	logger *slog.Logger
	alive  time.Duration // it wants a sign of life this often; 0 is never

	draining atomic.Bool
}

// newSupervisor looks for what the service manager has put into the
// environment.
func newSupervisor(server *proxy.Server, logger *slog.Logger) (*supervisor, error) {
	alive, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read WATCHDOG_USEC: %w", err)
	}
	return &supervisor{server: server, logger: logger, alive: alive}, nil
}

// ready says that clients can connect.
func (s *supervisor) ready() { s.tell(daemon.SdNotifyReady, s.status()) }

// reloading says that settings are being read; ready says that they have been.
func (s *supervisor) reloading() { s.tell(daemon.SdNotifyReloading) }

// stopping says that the sessions are being ended, and how long that may take,
// so that the service manager's own patience needn't be set to it.
func (s *supervisor) stopping(timeout time.Duration) {
	s.draining.Store(true)
	s.tell(daemon.SdNotifyStopping, s.status(),
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (timeout+stopMargin).Microseconds()))
}

// watch gives signs of life until ctx ends. It counts the sessions for each,
// under the lock that none can begin or end without: a proxy that hangs there
// gives none and is started anew. That etcd or PostgreSQL is away is no reason
// to be, for it would end the sessions that go on all the same.
func (s *supervisor) watch(ctx context.Context) {
	if s.alive == 0 {
		return
	}
	tick := time.NewTicker(s.alive / 3)
	defer tick.Stop()
	for {
		s.tell(daemon.SdNotifyWatchdog, s.status())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// status is what `systemctl status` shows.
func (s *supervisor) status() string {
	phase := "serving"
	if s.draining.Load() {
		phase = "draining"
	}
	return fmt.Sprintf("STATUS=%s, sessions: %d", phase, s.server.Sessions())
}

// tell sends one message. A service manager that doesn't take it will do what it
// does when it hears nothing; the log says why.
func (s *supervisor) tell(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		s.logger.Warn("notify the service manager", "error", err)
	}
}
