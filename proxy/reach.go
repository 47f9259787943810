package proxy

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// reach connects to a server that sessions shall go to and hands it the startup
// packet. The error says of each server that was tried why it wasn't that one.
func (s *session) reach(packet []byte) error {
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.settings().LoginTimeout)
	defer cancel()
	hosts := s.srv.Upstream
	if hosts.asks() {
		return s.reachChosen(ctx, packet)
	}
	var why []error
	for i := range hosts {
		err := s.try(ctx, &hosts[i], packet, i == len(hosts)-1)
		if err == nil {
			return nil
		}
		why = append(why, hosts[i].failure(err))
	}
	return &unreachable{why}
}

// reachChosen takes the server that is known to fit, and looks again if that
// one is gone.
func (s *session) reachChosen(ctx context.Context, packet []byte) error {
	h, err := s.srv.choose(ctx, false)
	if err == nil {
		if err = s.try(ctx, h, packet, len(s.srv.Upstream) == 1); err == nil {
			return nil
		}
		s.logger().Info("server not reached", "host", h.Name, "error", err)
	}
	if h, err = s.srv.choose(ctx, true); err != nil {
		return err
	}
	if err := s.try(ctx, h, packet, true); err != nil {
		return &unreachable{[]error{h.failure(err)}}
	}
	return nil
}

// dial connects to a server for a packet that none of them takes a session for.
func (s *Server) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.settings().LoginTimeout)
	defer cancel()
	hosts := s.Upstream
	if hosts.asks() {
		now, err := s.Reach(ctx, false)
		if err != nil {
			return nil, err
		}
		hosts = hosts[now : now+1]
	}
	var why []error
	for i := range hosts {
		conn, _, err := hosts[i].connect(ctx, s.timeout(&hosts[i]))
		if err == nil {
			return conn, nil
		}
		why = append(why, hosts[i].failure(err))
	}
	return nil, &unreachable{why}
}

// try connects to a server and hands it the startup packet. Unless it is the
// last that can be tried, the server must also answer in time, with something
// else than that it takes no sessions now.
func (s *session) try(ctx context.Context, h *Host, packet []byte, last bool) error {
	conn, endpoint, err := h.connect(ctx, s.srv.timeout(h))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.backend, s.host, s.endpoint = conn, h, endpoint
	s.mu.Unlock()
	if s.srv.ctx.Err() != nil {
		conn.Close() // abort has run before there was something to close
	}
	s.fromBackend, s.toBackend = wire.NewServerReader(conn), wire.NewWriter(conn)
	_ = s.toBackend.Write(packet)
	err = s.toBackend.Flush()
	if err != nil || !last {
		// A server that takes no packet may have said why.
		if answered := s.firstAnswer(s.srv.timeout(h), last); answered == nil || err == nil {
			err = answered
		}
	}
	if err != nil {
		conn.Close()
	}
	return err
}

// cannotConnectNow is what a server says that starts up or shuts down
// (errcodes.txt). As libpq does, others are tried then.
const cannotConnectNow = "57P03"

// firstAnswer waits for the beginning of what the server answers, and leaves it
// to be read. Any will do from the last server that can be tried.
func (s *session) firstAnswer(timeout time.Duration, last bool) error {
	s.backend.SetReadDeadline(time.Now().Add(timeout))
	defer s.backend.SetReadDeadline(noDeadline)
	t, _, err := s.fromBackend.Next()
	if err != nil {
		return err
	}
	if t != wire.ErrorResponse || last {
		return nil
	}
	body, err := s.fromBackend.Prefix()
	if err != nil {
		return err
	}
	if r, err := wire.ReadReport(body); err == nil && r.Code == cannotConnectNow {
		return fmt.Errorf("%s (%s)", r.Message, r.Code)
	}
	return nil
}

// claims returns what carries out claims where the session lives.
func (s *session) claims() Claims {
	if s.host != nil && s.host.Claims != nil {
		return s.host.Claims
	}
	return s.srv.Claims
}

// landed looks, when the server has taken the session, whether it still is what
// it was when it was chosen: PostgreSQL 14 and later tell at startup.
func (s *session) landed() error {
	s.mu.Lock()
	reported := s.hotStandby
	s.mu.Unlock()
	if reported == "" || !s.srv.Upstream.asks() || s.srv.stood(s.host).Standby == (reported == "on") {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.srv.ctx, s.srv.settings().LoginTimeout)
	defer cancel()
	h, err := s.srv.choose(ctx, true)
	if err == nil && h == s.host {
		return nil
	}
	now := "the primary"
	if reported == "on" {
		now = "a standby"
	}
	return s.reject(cannotConnectNow, fmt.Sprintf("PostgreSQL at %s has become %s: connect again", s.host.Name, now), err)
}
