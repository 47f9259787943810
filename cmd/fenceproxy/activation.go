package main

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// adminSocket is the FileDescriptorName of a passed socket that is to be the
// admin port. All others are for clients.
const adminSocket = "admin"

// inherit takes the sockets that a service manager has opened for this process
// (sd_listen_fds(3)), on whatever address it was told.
func (l *listeners) inherit() error {
	for _, file := range activation.Files(true) {
		ln, err := passed(file)
		switch {
		case err != nil:
			return err
		case file.Name() != adminSocket:
			l.clients = append(l.clients, ln)
		case l.admin != nil:
			ln.Close()
			return fmt.Errorf("LISTEN_FDS: two sockets are named %q, and there is one admin port", adminSocket)
		default:
			l.admin = ln
		}
	}
	return nil
}

// passed is a socket that was passed on, if it is one that clients connect to
// by TCP: sessions take nothing else. It takes the file over.
func passed(file *os.File) (net.Listener, error) {
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("LISTEN_FDS: %s is no listening socket: %w", file.Name(), rootCause(err))
	}
	if _, ok := ln.(*net.TCPListener); !ok {
		ln.Close()
		return nil, fmt.Errorf("LISTEN_FDS: %s listens on %s, and TCP is expected", file.Name(), ln.Addr().Network())
	}
	return ln, nil
}
