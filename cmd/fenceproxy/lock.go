package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/leases"
)

// defaultGrace is how long a command may take to end after its lock was lost.
const defaultGrace = 5 * time.Second

// What --on-lost has a command meet when its lock is lost.
const (
	onLostTerm   = "term"   // SIGTERM, and SIGKILL after the grace
	onLostKill   = "kill"   // SIGKILL
	onLostIgnore = "ignore" // nothing: the database refuses what it writes
)

// lockCommand holds a lock while a command runs.
type lockCommand struct {
	etcd   etcdFlags
	config string
	ttl    lifetime
	wait   wait
	onLost choice
	grace  span

	key    string
	argv   []string
	stderr io.Writer
}

func newLock(env environment) *cobra.Command {
	c := &lockCommand{
		etcd:   etcdFlags{prefix: leases.DefaultPrefix},
		ttl:    lifetime(leases.DefaultTTL),
		onLost: choice{onLostTerm, []string{onLostTerm, onLostKill, onLostIgnore}},
		grace:  span(defaultGrace),
	}
	cmd := &cobra.Command{
		Use:        "lock KEY [flags] -- CMD [ARG…]",
		SuggestFor: []string{"exec", "hold", "acquire"},
		Short:      "Hold a lock while a command runs",
		Long: `Hold the lock KEY in etcd while CMD runs.

CMD finds FENCE_KEY and FENCE_TOKEN in its environment, and PGOPTIONS set so that
psql and every other program that uses libpq presents the lock at startup. It has the
standard files and the terminal, and gets the signals that are sent to this process.

If the lock is lost, CMD and all in its process group get SIGTERM, and after --grace
SIGKILL (--on-lost term); SIGKILL at once (kill); or nothing (ignore), so that only the
database refuses what it goes on to write.

The exit status is CMD's own; 128 and the number of the signal that ended it; 126 or 127
if it can't be run or isn't there. It is 1 if the lock is taken (--wait waits for it), if
etcd can't be reached, and if the lock was lost before CMD ended well, unless that is to
be ignored; 2 for a command line that can't be carried out.`,
		Example: `  fenceproxy lock invoices:2026-07 --etcd http://127.0.0.1:2379 -- psql -h 127.0.0.1 -p 6433 -f invoices.sql
  fenceproxy lock nightly --wait 10m --on-lost kill --etcd http://127.0.0.1:2379 -- ./nightly.sh`,
		Args:              c.parseArgs,
		ValidArgsFunction: proposeProgram,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd, env); err != nil {
				return err
			}
			c.stderr = cmd.ErrOrStderr()
			return c.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	c.etcd.addBeside(flags)
	addConfig(flags, &c.config)
	flags.Var(&c.ttl, "ttl", "how long the lock outlives a holder that stopped renewing")
	flags.Var(&c.wait, "wait", "how long to wait for a taken lock; 0 tries once")
	flags.Var(&c.onLost, "on-lost", "what becomes of the command when the lock is lost")
	flags.Var(&c.grace, "grace", "time between SIGTERM and SIGKILL when the lock is lost")
	return cmd
}

// parseArgs wants KEY -- CMD, so that CMD's own flags are never ours.
func (c *lockCommand) parseArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return usagef("lock: KEY is missing; usage: %s", cmd.UseLine())
	case dash < 0 && len(args) > 1, dash > 1:
		return usagef("lock: unexpected argument %s; the command stands after --: %s", quotedArg(args[1]), cmd.UseLine())
	case len(args) == 1:
		return usagef("lock: CMD is missing; it stands after --: %s", cmd.UseLine())
	}
	c.key, c.argv = args[0], args[1:]
	return lockKey(c.key)
}

func (c *lockCommand) run(ctx context.Context) error {
	client, err := c.etcd.open()
	if err != nil {
		return err
	}
	defer client.Close()
	locker := leases.NewLocker(client)
	locker.Prefix, locker.TTL = c.etcd.prefix, time.Duration(c.ttl)
	// Those that end ctx are caught from here on: one that comes with the lock
	// is the command's. SIGPIPE, which a line to a closed standard error brings,
	// must never end this process before the command.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, endSignals(syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)...)
	defer signal.Stop(signals)
	lease, err := c.acquire(ctx, locker)
	if errors.Is(err, leases.ErrUnavailable) {
		err = fmt.Errorf("%w; start it or mend --etcd", err)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // a signal came just before the lock did
		_ = c.release(lease) // it frees itself otherwise
		return context.Cause(ctx)
	}
	// The others that people send. Up to now SIGQUIT ends the wait, at once.
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	child, err := startChild(c.argv, lockEnv(os.Environ(), c.key, lease.Token()))
	if err != nil {
		_ = c.release(lease) // the command's failure is what counts
		c.say("start command: %v", err)
		return startFailure(err)
	}
	return c.hold(lease, child, signals)
}

func (c *lockCommand) acquire(ctx context.Context, locker *leases.Locker) (*leases.Lease, error) {
	if c.wait == 0 {
		lease, err := locker.TryAcquire(ctx, c.key)
		if errors.Is(err, leases.ErrTaken) {
			err = fmt.Errorf("%w; --wait waits for it", err)
		}
		return lease, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(c.wait), fmt.Errorf("waited %v", time.Duration(c.wait)))
	defer cancel()
	for {
		lease, err := locker.Acquire(ctx, c.key)
		// A lease that died while waiting has cost the place in line only.
		if errors.Is(err, leases.ErrLost) && ctx.Err() == nil {
			continue
		}
		return lease, err
	}
}

// hold waits for the command's end or the lock's.
func (c *lockCommand) hold(lease *leases.Lease, child *child, signals <-chan os.Signal) error {
	lost := lease.Context().Done() // nil once the loss was told, and is ignored
	for {
		select {
		case <-child.done:
			return c.ended(lease, child, lost == nil)
		case sig := <-signals:
			if sig != syscall.SIGPIPE {
				child.signal(sig.(syscall.Signal))
			}
		case <-lost:
			if c.onLost.value == onLostIgnore {
				c.say("%v; the command goes on", context.Cause(lease.Context()))
				lost = nil
				continue
			}
			c.say("%v; ending the command", context.Cause(lease.Context()))
			if c.onLost.value == onLostKill {
				child.kill()
			} else {
				child.end(time.Duration(c.grace))
			}
			// Lost already; what is left of it is taken away if etcd is there.
			_ = c.release(lease)
			return exitStatus(1)
		}
	}
}

// ended gives the lock back and passes the command's exit status on, unless
// the lock turns out to have been lost before the command's end and that counts.
// told says that the user knows of the loss.
func (c *lockCommand) ended(lease *leases.Lease, child *child, told bool) error {
	code := child.exitCode()
	if err := c.release(lease); err != nil && !told {
		c.say("release lock: %v", err)
		if errors.Is(err, leases.ErrLost) && code == 0 && c.onLost.value != onLostIgnore {
			code = 1
		}
	}
	if code == 0 {
		return nil
	}
	return exitStatus(code)
}

// release gives the lock back in bounded time.
func (c *lockCommand) release(lease *leases.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return lease.Release(ctx)
}

// say tells the user something in one line.
func (c *lockCommand) say(format string, args ...any) {
	fmt.Fprintf(c.stderr, "fenceproxy: "+format+"\n", args...)
}
