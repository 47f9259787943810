package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// lifetimeFlags say how many sessions there may be, and for how long.
type lifetimeFlags struct {
	loginTimeout           span
	clientIdleTimeout      wait
	idleTransactionTimeout wait
	maxConnections         count

	keepAlive         wait
	keepAliveInterval span
	keepAliveCount    count
	userTimeout       wait
}

func newLifetimeFlags() lifetimeFlags {
	sockets := proxy.DefaultSockets()
	return lifetimeFlags{
		loginTimeout:      span(proxy.DefaultLoginTimeout),
		keepAlive:         wait(sockets.KeepAlive.Idle),
		keepAliveInterval: span(sockets.KeepAlive.Interval),
		keepAliveCount:    count(sockets.KeepAlive.Count),
		userTimeout:       wait(sockets.UserTimeout),
	}
}

func (f *lifetimeFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.loginTimeout, "login-timeout", "how long a client may take to log in, PostgreSQL's part included")
	flags.Var(&f.clientIdleTimeout, "client-idle-timeout", "how long a client may ask nothing outside a transaction; 0s is for ever")
	flags.Var(&f.idleTransactionTimeout, "idle-transaction-timeout", "how long a client may ask nothing inside a transaction; 0s is for ever")
	flags.Var(&f.maxConnections, "max-connections", "how many sessions there may be; 0 is no limit")
	flags.Var(&f.keepAlive, "tcp-keepalive", "how long a peer may be silent before TCP asks whether it is there; 0s never asks")
	flags.Var(&f.keepAliveInterval, "tcp-keepalive-interval", "how long until it asks again")
	flags.Var(&f.keepAliveCount, "tcp-keepalive-count", "how often it asks")
	flags.Var(&f.userTimeout, "tcp-user-timeout", "how long a peer may leave what was sent to it; 0s is the system's own (Linux)")
}

func (f *lifetimeFlags) set(settings *proxy.Settings) {
	settings.LoginTimeout = time.Duration(f.loginTimeout)
	settings.ClientIdleTimeout = time.Duration(f.clientIdleTimeout)
	settings.IdleTransactionTimeout = time.Duration(f.idleTransactionTimeout)
	settings.MaxConnections = int(f.maxConnections)
	settings.Sockets = proxy.Sockets{
		KeepAlive: net.KeepAliveConfig{
			Enable: f.keepAlive > 0, Idle: time.Duration(f.keepAlive),
			Interval: time.Duration(f.keepAliveInterval), Count: int(f.keepAliveCount),
		},
		UserTimeout: time.Duration(f.userTimeout),
	}
}

// count is a number of things, 0 included.
type count int

func (c *count) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("a number is expected, 0 or above")
	}
	*c = count(n)
	return nil
}
func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (*count) Type() string     { return "number" }
