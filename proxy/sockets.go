package proxy

import (
	"net"
	"time"
)

// Sockets say how TCP finds out that the other end of a session is gone, on
// either leg.
type Sockets struct {
	// KeepAlive asks a peer that is silent; Enable false never asks.
	KeepAlive net.KeepAliveConfig
	// UserTimeout is how long what was sent may stay unacknowledged, or wait
	// for a peer that doesn't read; 0 leaves it to the system. Linux only.
	UserTimeout time.Duration
}

// DefaultSockets find a peer that is gone within two minutes. What was sent to
// it stays with the system's timeout: one that ends it sooner would also end
// sessions whose client is slow to read, or whose server is busy.
func DefaultSockets() Sockets {
	return Sockets{KeepAlive: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 10 * time.Second, Count: 6}}
}

// tune sets the options of a connection. One that can't be set has none of
// them to lose: it is gone, or no TCP connection.
func (o Sockets) tune(conn net.Conn) {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(o.KeepAlive)
	if o.UserTimeout > 0 {
		_ = setUserTimeout(tcp, o.UserTimeout)
	}
}
