package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// DefaultTimeout is how long one script may take.
const DefaultTimeout = 20 * time.Second

// Aside is how a script asks things of the server, or has them done, without
// a session of its own.
type Aside interface {
	// Exec carries SQL out. An error is the script's fault.
	Exec(ctx context.Context, sql string) error
	// True asks a query of one boolean; no row is false.
	True(ctx context.Context, sql string) (bool, error)
}

// A Player plays scripts at one place.
type Player struct {
	Where   Where
	Network string // of PostgreSQL or a proxy, as net.Dial takes it
	Addr    string
	// TLS encrypts the sessions that scripts open by their names.
	TLS bool
	// Params are names and values in every startup packet, ahead of the
	// script's own.
	Params []string
	// Tag are names and values that follow them; they stand for the tag.
	Tag     []string
	Aside   Aside
	Timeout time.Duration
	// Interrupt is something to be done in the middle of the next script; nil is
	// nothing.
	Interrupt *Interruption
}

// errEnded ends a script early, and well.
var errEnded = errors.New("the connection ended")

// A performance is one script being played.
type performance struct {
	*Player
	ctx      context.Context
	deadline time.Time
	sessions []*session
	current  *session
	pids     map[uint32]string
	trace    Trace
	astray   bool // it was interrupted
	alike    int  // how many rows, or pieces of a COPY's data, came last
}

// Play plays a script and returns what came. The error says where something
// else came than what the script expects; the trace goes as far as that.
func (p *Player) Play(ctx context.Context, s *Script) (Trace, error) {
	deadline := time.Now().Add(p.timeout())
	run := &performance{Player: p, ctx: ctx, deadline: deadline, pids: map[uint32]string{}}
	defer run.close()
	if a := s.Steps[0].Action; a != ActOn && a != ActDial {
		if err := run.on("a", nil); err != nil {
			return run.trace, err
		}
	}
	for _, step := range s.Steps {
		err := run.step(step)
		if errors.Is(err, errEnded) {
			break
		}
		if err != nil {
			return run.trace, fmt.Errorf("%s:%d: %w", s.File, step.Line, err)
		}
	}
	if err := run.end(); err != nil {
		return run.trace, fmt.Errorf("%s: %s: at its end: %w", s.File, s.Name, err)
	}
	return run.trace, nil
}

func (p *Player) timeout() time.Duration {
	if p.Timeout == 0 {
		return DefaultTimeout
	}
	return p.Timeout
}

func (r *performance) close() {
	for _, s := range r.sessions {
		s.close()
	}
}

func (r *performance) step(step Step) error {
	if r.current == nil && step.Action != ActOn && step.Action != ActDial && step.Action != ActWait && step.Action != ActAdmin {
		return fmt.Errorf("%v without a session", step.Action)
	}
	switch step.Action {
	case ActSend:
		if err := r.send(step); !r.tolerable(err) {
			return err
		}
	case ActExpect:
		return r.expect(step)
	case ActOn:
		if err := r.on(step.Session, step.Params); !r.tolerable(err) {
			return err
		}
		r.current.lost = r.current.lost || r.current.ended
	case ActDial:
		return r.dial(step.Session)
	case ActTLS:
		return r.encrypt(step.Params)
	case ActClose:
		r.current.close()
		r.current.ended, r.current = true, nil
	case ActHalfClose:
		r.current.finish()
		return r.current.closeWrite()
	case ActWait:
		if r.astray {
			return r.waitAstray(step.SQL)
		}
		return r.Until(r.ctx, step.SQL)
	case ActAdmin:
		if err := r.Aside.Exec(r.ctx, step.SQL); !r.tolerable(err) {
			return err
		}
	}
	return nil
}

func (r *performance) dial(name string) error {
	s, err := dial(name, r.Network, r.Addr, r.deadline)
	if err != nil {
		return err
	}
	s.odd = true // until it is logged in
	r.sessions = append(r.sessions, s)
	r.current = s
	return nil
}

// encrypt takes the handshake on the current session.
func (r *performance) encrypt(params []string) error {
	config, err := clientTLS(params)
	if err != nil {
		return err
	}
	r.trace = append(r.trace, r.current.encrypt(config))
	return nil
}

// beginTLS asks for TLS and takes the handshake; no trace tells of it.
func (r *performance) beginTLS() error {
	r.current.send(packet(codeSSL), false)
	answer, err := r.current.nextByte()
	if err != nil || answer.Detail != "S" {
		return fmt.Errorf("ask for TLS: got %v, %w", answer, err)
	}
	config, err := clientTLS(nil)
	if err != nil {
		return err
	}
	if e := r.current.encrypt(config); e.Detail == tlsRefused {
		return errors.New("TLS was refused")
	}
	return nil
}

// clientTLS reads what a client wants of TLS: alpn=NAME, a protocol name to
// agree on, and max=VERSION, the highest version that it speaks. It takes any
// certificate.
func clientTLS(params []string) (*tls.Config, error) {
	versions := map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10}
	for i := 0; i < len(params); i += 2 {
		switch name, value := params[i], params[i+1]; name {
		case "alpn":
			config.NextProtos = append(config.NextProtos, value)
		case "max":
			if config.MaxVersion = versions[value]; config.MaxVersion == 0 {
				return nil, fmt.Errorf("%q is no version of TLS", value)
			}
		default:
			return nil, fmt.Errorf("%q is nothing that a client wants of TLS", name)
		}
	}
	return config, nil
}

// on goes on with a session. One that isn't there is opened up to its first
// ReadyForQuery.
func (r *performance) on(name string, params []string) error {
	for _, s := range r.sessions {
		if s.name == name && !s.ended {
			r.current = s
			return nil
		}
	}
	if err := r.dial(name); err != nil {
		return err
	}
	if r.TLS {
		if err := r.beginTLS(); err != nil {
			return fmt.Errorf("open session %s: %w", name, err)
		}
	}
	r.current.send(startupPacket(version30, r.params(name, params)), false)
	for {
		e, err := r.next("")
		if err != nil {
			return fmt.Errorf("open session %s: %w", name, err)
		}
		switch e.Letter {
		case "Z":
			r.current.odd, r.current.readies = false, 0
			return nil
		case letterEnd:
			return fmt.Errorf("open session %s: refused", name)
		}
	}
}

// params are those of a session's startup packet. The server takes the last
// of two.
func (r *performance) params(name string, own []string) []string {
	return slices.Concat(r.Params, []string{"application_name", name}, own, r.Tag)
}

func (r *performance) send(step Step) error {
	if m := step.Messages[0]; m.cancel != "" {
		return r.cancel(m)
	}
	var b []byte
	flush := func() {
		if len(b) > 0 {
			r.current.send(b, step.Split)
			b = nil
		}
	}
	for _, m := range step.Messages {
		if err := r.boundary(flush); err != nil {
			return err
		}
		r.trace = append(r.trace, Event{Session: r.current.name, Sent: true, Letter: m.Text})
		r.count(strings.HasPrefix(m.Text, "d "))
		if m.startup {
			m.bytes = startupPacket(binary.BigEndian.Uint32(m.bytes), r.params(r.current.name, m.params))
		}
		r.current.note(m)
		b = append(b, m.bytes...)
	}
	flush()
	return nil
}

// cancel sends a CancelRequest and waits until the other side hangs up.
func (r *performance) cancel(m Message) error {
	at := slices.IndexFunc(r.sessions, func(s *session) bool { return s.name == m.cancel && s.key != nil })
	if at < 0 {
		return fmt.Errorf("no session %s to cancel", m.cancel)
	}
	key := slices.Clone(r.sessions[at].key)
	if m.wrong {
		key[len(key)-1] ^= 1
	}
	conn, err := net.DialTimeout(r.Network, r.Addr, time.Until(r.deadline))
	if err != nil {
		return fmt.Errorf("connect to cancel: %w", err)
	}
	defer conn.Close()
	conn.SetDeadline(r.deadline)
	if _, err := conn.Write(packet(codeCancel, key...)); err != nil {
		return fmt.Errorf("send cancel request: %w", err)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("a cancel request was answered %q, %w", rest, err)
	}
	r.trace = append(r.trace, Event{Session: "-", Sent: true, Letter: m.Text})
	return nil
}

// next reads what comes on the current session and writes it down. The letter
// is that of what must come.
func (r *performance) next(letter string) (e Event, err error) {
	switch letter {
	case letterByte:
		e, err = r.current.nextByte()
	case letterRest:
		e, err = r.current.all()
	default:
		e, err = r.current.next(r.pids)
	}
	if err == nil {
		r.trace = append(r.trace, e)
		r.count(e.Letter == "D" || e.Letter == "d")
		err = r.current.heard(e)
	}
	return e, err
}

func (r *performance) expect(step Step) error {
	wants, err := step.wants(r.Where)
	if err != nil || r.astray && r.current.lost {
		return err
	}
	if err = r.hear(wants); r.tolerable(err) {
		r.current.lost = err != nil // and read no further until the script is over
		return nil
	}
	return err
}

// hear reads up to the last message that must come.
func (r *performance) hear(wants []Want) error {
	for i := 0; i < len(wants); {
		skip := wants[i].Letter == letterSkip
		if skip {
			i++
		}
		e, err := r.listen(wants[i].Letter)
		for err == nil && skip && !wants[i].matches(e) {
			if e.Letter == letterEnd {
				return errEnded
			}
			e, err = r.listen(wants[i].Letter)
		}
		if err != nil {
			return fmt.Errorf("want %v: %w", wants[i], err)
		}
		for wants[i].Any && e.Letter != wants[i].Letter {
			i++
		}
		if !wants[i].matches(e) {
			return fmt.Errorf("got %s (%s), want %v", e, e.Detail, wants[i])
		}
		if !wants[i].Any {
			i++
		}
	}
	return nil
}

// Until asks a query of one boolean, from aside, until it says true.
func (p *Player) Until(ctx context.Context, sql string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(p.timeout())
	for {
		ok, err := p.Aside.True(ctx, sql)
		if err != nil {
			return fmt.Errorf("ask from aside: %w", err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("never true: %s", strings.TrimSpace(sql))
		}
	}
}

// leave says goodbye on each session that is still open, and writes down all
// that had not been read.
func (r *performance) leave() error {
	goodbye, err := ParseMessage("X")
	if err != nil {
		return err
	}
	for _, s := range r.sessions {
		if s.ended {
			continue
		}
		r.current = s
		if !s.quiet {
			s.send(goodbye.bytes, false)
			s.finish()
			_ = s.closeWrite() // fails where the server has closed, which is read below
		}
		for !s.ended {
			if _, err := r.next(""); err != nil {
				return err
			}
		}
	}
	return nil
}
