package fault

import (
	"net"
	"sync"
	"time"
)

// pumpBuffer is how much of a stream a link holds for each direction.
const pumpBuffer = 16 << 10

// A pair is the two halves of one connection over a link.
type pair struct {
	link *Link
	from *net.TCPConn

	before func(there bool, name string) // of the link, when the pumps began

	mu    sync.Mutex
	to    *net.TCPConn  // nil until the target has been reached
	gone  chan struct{} // closed by reset
	ended bool
}

// meet takes the target's half in, unless the pair was reset meanwhile.
func (p *pair) meet(to *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		reset(to)
		return false
	}
	p.to = to
	return true
}

// reset ends both halves at once.
func (p *pair) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	close(p.gone)
	reset(p.from)
	if p.to != nil {
		reset(p.to)
	}
}

// reset closes a connection in such a way that its peer reads an error and no
// orderly end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // it may be closed already
	_ = conn.Close()
}

// pump passes one direction on, its end too. It returns at that end, and when
// the pair is reset; silence is the mode that stops this direction.
func (p *pair) pump(both *sync.WaitGroup, to, from *net.TCPConn, silence Mode, next Framer) {
	defer both.Done()
	buffer := make([]byte, pumpBuffer)
	var kept []byte // the beginning of a message
	for {
		n, err := from.Read(buffer)
		if !p.pass(silence) {
			return
		}
		if n > 0 && next == nil {
			if _, err := to.Write(buffer[:n]); err != nil {
				p.reset()
				return
			}
		} else if n > 0 {
			if kept = p.messages(to, append(kept, buffer[:n]...), silence, next); kept == nil {
				p.reset()
				return
			}
		}
		if err != nil {
			_ = to.CloseWrite() // the other half may be gone, which is as well
			return
		}
	}
}

// messages passes on the messages that are whole and returns the rest, or nil if
// the pair is gone.
func (p *pair) messages(to *net.TCPConn, b []byte, silence Mode, next Framer) []byte {
	for {
		n, name := next(b)
		if n == 0 {
			return append([]byte{}, b...)
		}
		if name != "" {
			p.before(silence == SilentThere, name)
		}
		if !p.pass(silence) {
			return nil
		}
		if _, err := to.Write(b[:n]); err != nil {
			return nil
		}
		b = b[n:]
	}
}

// pass waits until the link lets a direction's next piece through. It returns
// false when the pair is gone.
func (p *pair) pass(silence Mode) bool {
	late := false
	for {
		c := p.link.now.Load()
		var timer *time.Timer
		var due <-chan time.Time
		switch {
		case c.mode == Silent || c.mode == silence || c.mode == Cut: // it is about to be reset
		case c.mode == Slow && !late:
			timer = time.NewTimer(p.link.Delay)
			due = timer.C
		default:
			return true
		}
		select {
		case <-c.over:
		case <-due:
			late = true
		case <-p.gone:
		}
		if timer != nil {
			timer.Stop()
		}
		select {
		case <-p.gone:
			return false
		default:
		}
	}
}
