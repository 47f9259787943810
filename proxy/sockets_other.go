//go:build !linux

package proxy

import (
	"errors"
	"net"
	"time"
)

func setUserTimeout(*net.TCPConn, time.Duration) error { return errors.ErrUnsupported }
