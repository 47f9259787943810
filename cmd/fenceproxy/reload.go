package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/live"
)

// reloadable reports whether a setting can change while the proxy serves.
func reloadable(flag string) bool {
	switch flag {
	case "log-level", "untagged-writes", "fencing", policiesFlag,
		"evict-after", "claim-timeout", "verify-timeout", "drain-timeout",
		"login-timeout", "client-idle-timeout", "idle-transaction-timeout", "max-connections",
		"tcp-keepalive", "tcp-keepalive-interval", "tcp-keepalive-count", "tcp-user-timeout",
		"client-tls-cert", "client-tls-key", "client-tls-ca", "auth-file", "cancel-peers",
		"console-database", "admin-roles", "stats-roles",
		"sql-locks", "sql-lock-max-ttl", "sql-lock-max-wait", "sql-locks-per-session":
		return true
	}
	return false
}

// catchHangups returns where SIGHUPs come that ask for a reload. They end the
// proxy no more, as they do other commands.
func catchHangups() (hangups chan os.Signal, stop func()) {
	hangups = make(chan os.Signal, 1)
	signal.Reset(syscall.SIGHUP)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups, func() { signal.Stop(hangups) }
}

// A reloader has what is running go by the settings that it reads anew.
type reloader struct {
	read      func() (*serveCommand, *pflag.FlagSet, error)
	logger    *slog.Logger
	level     *slog.LevelVar
	upstream  *upstream
	boss      *supervisor
	locks     *lockWatching
	passwords *credentials // nil: PostgreSQL verifies passwords itself

	// What counts now. Of a setting that can't be reloaded it is what the proxy
	// was started with.
	serve   *serveCommand
	tls     proxy.ClientTLS
	written map[string]writtenSetting
	serving *serving // tells them
}

// A writtenSetting is what the file says of a setting.
type writtenSetting struct {
	text  string // there, "" if nothing
	value string // as it may be shown
}

func writtenSettings(flags *pflag.FlagSet) map[string]writtenSetting {
	all := map[string]writtenSetting{}
	flags.VisitAll(func(f *pflag.Flag) {
		w := writtenSetting{value: f.Value.String()}
		if text := f.Annotations[fileNote]; len(text) > 0 {
			w.text = text[0]
		}
		all[f.Name] = w
	})
	return all
}

// run reloads at each SIGHUP, and whenever it is asked to, until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		var asked reloadRequest
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		case asked = <-r.serving.reloads:
		}
		r.boss.reloading()
		became, err := r.reload()
		r.boss.ready()
		if asked != nil {
			asked <- reloadAnswer{became, err}
		}
	}
}

// reload takes all of the new settings, or none where one of them is wrong.
func (r *reloader) reload() (live.Reloaded, error) {
	next, flags, err := r.read()
	var clientTLS proxy.ClientTLS
	if err == nil {
		if clientTLS, err = next.validate(r.logger); err == nil && r.passwords != nil && r.sameMode(next) {
			err = r.passwords.use(next.authFile)
		}
	}
	if err != nil {
		var found faults
		found.add(located(flags, err))
		for _, fault := range found {
			r.logger.Error("settings not reloaded: they stay as they are", "fault", oneLine(fault))
		}
		return live.Reloaded{}, found
	}
	became := r.tellChanges(flags, next)
	if !r.sameMode(next) {
		next.tls, next.authFile, clientTLS = r.serve.tls, r.serve.authFile, r.tls
	}
	if r.tls.Config != nil && r.serve.tls.files() == next.tls.files() {
		clientTLS = r.tls  // its clients resume their TLS sessions,
		clientTLS.Config() // unless the files have changed
	}
	r.apply(next, clientTLS)
	r.logger.Info("settings reloaded", "changed", len(became.Changed))
	return became, nil
}

// sameMode reports whether client-tls is what it was; otherwise nothing that has
// to do with TLS can be reloaded.
func (r *reloader) sameMode(next *serveCommand) bool {
	return r.serve.tls.mode.value == next.tls.mode.value
}

// takes reports whether the new value of a setting counts at once.
func (r *reloader) takes(flag string, next *serveCommand) bool {
	ofTLS := flag == "auth-file" || strings.HasPrefix(flag, "client-tls")
	return reloadable(flag) && (!ofTLS || r.sameMode(next))
}

// tellChanges logs each setting that the file has changed since it counted, and
// returns them.
func (r *reloader) tellChanges(flags *pflag.FlagSet, next *serveCommand) (became live.Reloaded) {
	for name, now := range writtenSettings(flags) {
		was := r.written[name]
		switch {
		case now.text == was.text:
			r.serving.set(flags, name) // it may stand in another line
		case r.takes(name, next):
			became.Changed = append(became.Changed, live.Change{Name: fileKey(name), From: was.value, To: now.value})
			r.written[name] = now
			r.serving.set(flags, name)
			r.logger.Info("setting changed", "setting", fileKey(name), "from", was.value, "to", now.value)
		default:
			became.Restart = append(became.Restart, fileKey(name))
			r.logger.Warn("setting not changed: it needs a restart", "setting", fileKey(name))
		}
	}
	slices.SortFunc(became.Changed, func(a, b live.Change) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(became.Restart)
	return became
}

// apply has everything go by the new settings, as far as that can be.
func (r *reloader) apply(next *serveCommand, clientTLS proxy.ClientTLS) {
	r.level.Set(next.level())
	policies, err := next.policy.policies()
	if err != nil {
		return // not reached: validate has looked
	}
	if policies.Follow() {
		r.locks.begin()
	}
	now := r.upstream.server.Settings // as it was started with
	next.life.set(&now)
	now.Policies, now.TLS, now.Peers, now.Console = policies, clientTLS, next.cancelPeers, next.console.settings()
	now.Lending = next.lending.lending()
	r.upstream.server.Reload(now)
	for _, h := range r.upstream.hosts {
		h.claimer.Retime(next.times())
	}
	r.serve.tls, r.serve.authFile, r.serve.drainTimeout = next.tls, next.authFile, next.drainTimeout
	r.tls = clientTLS
}

// times are those of claims.
func (c *serveCommand) times() fencing.Times {
	return fencing.Times{
		EvictAfter: time.Duration(c.evictAfter), ClaimTimeout: time.Duration(c.claimTimeout), VerifyTimeout: time.Duration(c.verifyTimeout),
	}
}
