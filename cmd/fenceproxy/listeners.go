package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// listeners are the ports of serve.
type listeners struct {
	clients []net.Listener
	admin   net.Listener
}

// open opens the ports that a service manager hasn't opened before: all or
// none. loopbackOnly is for clients' ports.
func (l *listeners) open(clients address, admin *adminFlags, loopbackOnly bool) error {
	err := l.inherit()
	if err == nil && len(l.clients) == 0 {
		var ln net.Listener
		if ln, err = listen("--listen", clients); err == nil {
			l.clients = []net.Listener{ln}
		}
	}
	if err == nil && loopbackOnly {
		err = l.refuseExposed()
	}
	if err == nil && l.admin == nil {
		l.admin, err = listen("--admin-listen", admin.listen)
	}
	if err == nil {
		err = admin.checkPort(l.admin)
	}
	if err != nil {
		l.close()
	}
	return err
}

// loopbackOnly reports whether clients can't encrypt, and nobody has said that
// those of other machines may connect all the same.
func (c *serveCommand) loopbackOnly() bool {
	return c.tls.mode.value == proxy.TLSDisable.String() && !bool(c.insecureListen)
}

// refuseExposed refuses sockets that other machines reach. A name of --listen is
// known to be one of theirs only now, as sockets are that were passed on.
func (l *listeners) refuseExposed() error {
	for _, ln := range l.clients {
		if at := ln.Addr(); at.Network() == "tcp" && !isLoopback(at.String()) {
			return exposed("the port for clients", at.String())
		}
	}
	return nil
}

// exposed words why clients aren't taken at an address.
func exposed(what, at string) error {
	return usagef("%s: other machines reach %s, and what clients send there, passwords too, would not be encrypted: "+
		"give --client-tls with --client-tls-cert and --client-tls-key, or --insecure-listen if that is meant", what, at)
}

// where says on which addresses clients are awaited.
func (l *listeners) where() string {
	all := make([]string, len(l.clients))
	for i, ln := range l.clients {
		all[i] = ln.Addr().String()
	}
	return strings.Join(all, ",")
}

// close may be called for ports that their servers have closed.
func (l *listeners) close() {
	for _, ln := range l.clients {
		_ = ln.Close()
	}
	if l.admin != nil {
		_ = l.admin.Close()
	}
}

// listen opens a port; the error names the flag to mend.
func listen(flag string, at address) (net.Listener, error) {
	ln, err := net.Listen("tcp", string(at))
	if err != nil {
		return nil, listenError(flag, at.String(), err)
	}
	return ln, nil
}

// listenError words why a port can't be listened on.
func listenError(flag, at string, err error) error {
	return fmt.Errorf("%s %s: %w; stop what has the port or choose another", flag, at, rootCause(err))
}
