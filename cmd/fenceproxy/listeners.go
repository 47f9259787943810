package main

import (
	"fmt"
	"net"
	"strings"
)

// listeners are the ports of serve.
type listeners struct {
	clients []net.Listener
	admin   net.Listener
}

// open opens the ports that a service manager hasn't opened before: all or
// none.
func (l *listeners) open(clients, admin address) error {
	err := l.inherit()
	if err == nil && len(l.clients) == 0 {
		var ln net.Listener
		if ln, err = listen("--listen", clients); err == nil {
			l.clients = []net.Listener{ln}
		}
	}
	if err == nil && l.admin == nil {
		l.admin, err = listen("--admin-listen", admin)
	}
	if err != nil {
		l.close()
	}
	return err
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
