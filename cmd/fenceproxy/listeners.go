package main

import (
	"fmt"
	"net"
)

// listeners are the ports of serve.
type listeners struct{ clients, admin net.Listener }

// open opens both or none.
func (l *listeners) open(clients, admin address) (err error) {
	if l.clients, err = listen("--listen", clients); err != nil {
		return err
	}
	if l.admin, err = listen("--admin-listen", admin); err != nil {
		l.clients.Close()
	}
	return err
}

// close may be called for ports that their servers have closed.
func (l *listeners) close() {
	_ = l.clients.Close()
	_ = l.admin.Close()
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
