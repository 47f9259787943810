package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// The types of flags. Each checks in Set, so that a bad value is refused
// with the name of the flag, variable or line that it came from.

// span is a duration above zero.
type span time.Duration

func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("a duration above 0 such as 200ms or 5s is expected")
	}
	*s = span(d)
	return nil
}
func (s *span) String() string { return time.Duration(*s).String() }
func (*span) Type() string     { return "duration" }

// wait is a duration that may be zero.
type wait time.Duration

func (w *wait) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("a duration such as 0s, 30s or 5m is expected")
	}
	*w = wait(d)
	return nil
}
func (w *wait) String() string { return time.Duration(*w).String() }
func (*wait) Type() string     { return "duration" }

// lifetime is the time to live of a lease, which etcd counts in seconds.
type lifetime time.Duration

func (l *lifetime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return fmt.Errorf("a duration of 1s or more is expected, such as 30s")
	}
	*l = lifetime(d)
	return nil
}
func (l *lifetime) String() string { return time.Duration(*l).String() }
func (*lifetime) Type() string     { return "duration" }

// address is a host and a port to listen on; port 0 lets the system choose.
type address string

func (a *address) Set(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return fmt.Errorf("host:port is expected, such as 127.0.0.1:6433")
	}
	*a = address(text)
	return nil
}
func (a *address) String() string { return string(*a) }
func (*address) Type() string     { return "host:port" }

// exposed reports whether other machines reach an address. Which a name stands
// for is seen when it is listened on.
func (a address) exposed() bool {
	host, _, _ := net.SplitHostPort(string(a))
	_, err := netip.ParseAddr(host)
	return (host == "" || err == nil) && !isLoopback(string(a))
}

// loopback is an address that no other machine reaches: the embedded etcd asks
// for no password.
type loopback struct{ address }

func (l *loopback) Set(text string) error {
	var a address
	if err := a.Set(text); err != nil {
		return err
	}
	if !isLoopback(text) {
		return fmt.Errorf("an address on loopback is expected, such as 127.0.0.1:2379")
	}
	l.address = a
	return nil
}

// isLoopback reports whether no other machine reaches an address. Of names only
// localhost is one that none does.
func isLoopback(at string) bool {
	host, _, err := net.SplitHostPort(at)
	ip, unparsed := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || unparsed == nil && ip.Unmap().IsLoopback())
}

// toggle is a setting that is on or off.
type toggle bool

func (t *toggle) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("true or false is expected")
	}
	*t = toggle(on)
	return nil
}
func (t *toggle) String() string { return strconv.FormatBool(bool(*t)) }
func (*toggle) Type() string     { return "bool" }

// port is that of a server to start; 0 takes a free one.
type port uint16

func (p *port) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("a port from 0 to 65535 is expected")
	}
	*p = port(n)
	return nil
}
func (p *port) String() string { return strconv.Itoa(int(*p)) }
func (*port) Type() string     { return "port" }

// endpoints are the client addresses of etcd's members.
type endpoints []string

func (e *endpoints) Set(text string) error {
	var all []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if !strings.Contains(item, "://") {
			item = "http://" + item
		}
		u, err := url.Parse(item)
		if err != nil || u.Host == "" || u.Port() == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
			return fmt.Errorf("URLs joined with commas are expected, such as http://10.0.0.1:2379,http://10.0.0.2:2379")
		}
		if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("URLs without a password are expected: etcd's user is --etcd-user, its password in --etcd-password-file")
		}
		all = append(all, item)
	}
	*e = all
	return nil
}
func (e *endpoints) String() string { return strings.Join(*e, ",") }
func (*endpoints) Type() string     { return "URL,..." }

// peers are the addresses of other proxies, which a name may stand for several
// of.
type peers []string

func (p *peers) Set(text string) error {
	var all []string
	for item := range strings.SplitSeq(text, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(item))
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil || host == "" || port == "" || port == "0" {
			return fmt.Errorf("host:port pairs joined with commas are expected, such as fenceproxy-peers:6433")
		}
		all = append(all, net.JoinHostPort(host, port))
	}
	*p = all
	return nil
}
func (p *peers) String() string { return strings.Join(*p, ",") }
func (*peers) Type() string     { return "host:port,..." }

// choice is one word out of a few.
type choice struct {
	value string
	among []string
}

func (c *choice) Set(text string) error {
	if !slices.Contains(c.among, text) {
		return fmt.Errorf("one of %s is expected", strings.Join(c.among, ", "))
	}
	c.value = text
	return nil
}
func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.among, "|") }

// lockKey checks the name of a lock as fencing does.
func lockKey(key string) error {
	if key == "" {
		return usagef("lock: KEY is empty")
	}
	var refusal *fencing.Error
	if _, err := fencing.ParseTag(key, "1", ""); errors.As(err, &refusal) {
		// The refusal is worded for a session that has set fence.key.
		why := strings.TrimPrefix(refusal.Message, refusal.Code.Name()+": ")
		return usagef("lock: KEY: %s", strings.TrimPrefix(why, fencing.SettingKey+": "))
	}
	return nil
}
