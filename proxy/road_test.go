package proxy_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
)

// stands is a host that answers so.
func stands(name string, s proxy.Standing, err error) proxy.Host {
	return proxy.Host{Name: name, Ask: func(context.Context) (proxy.Standing, error) { return s, err }}
}

// hangs is a host that doesn't answer.
func hangs(name string, timeout time.Duration) proxy.Host {
	return proxy.Host{Name: name, Timeout: timeout, Ask: func(ctx context.Context) (proxy.Standing, error) {
		<-ctx.Done()
		return proxy.Standing{}, ctx.Err()
	}}
}

func TestServer_Reach(t *testing.T) {
	primary := func(timeline uint32) proxy.Standing { return proxy.Standing{Fit: proxy.FitYes, Timeline: timeline} }
	standby := proxy.Standing{Fit: proxy.FitNo, Why: "it is a standby", Standby: true}
	refused := errors.New("connection refused")
	for _, c := range []struct {
		name string
		up   proxy.Upstream
		want int
		err  string
	}{
		{"the first", proxy.Upstream{stands("a", primary(1), nil), stands("b", standby, nil)}, 0, ""},
		{"the second", proxy.Upstream{stands("a", standby, nil), stands("b", primary(1), nil)}, 1, ""},
		{"one is down", proxy.Upstream{stands("a", proxy.Standing{}, refused), stands("b", primary(1), nil)}, 1, ""},
		{"one hangs", proxy.Upstream{hangs("a", time.Minute), stands("b", primary(1), nil)}, 1, ""},
		{"two primaries", proxy.Upstream{stands("a", primary(1), nil), stands("b", primary(2), nil)}, 1, ""},
		{"two alike", proxy.Upstream{stands("a", primary(2), nil), stands("b", primary(2), nil)}, 0, ""},
		{"a standby is preferred", proxy.Upstream{stands("a", proxy.Standing{Fit: proxy.FitSecond, Timeline: 1}, nil), stands("b", proxy.Standing{Fit: proxy.FitYes, Standby: true}, nil)}, 1, ""},
		{"a standby would be preferred", proxy.Upstream{stands("a", proxy.Standing{}, refused), stands("b", proxy.Standing{Fit: proxy.FitSecond, Timeline: 1}, nil)}, 1, ""},
		{"none", proxy.Upstream{stands("a", standby, nil), stands("b", proxy.Standing{}, refused), hangs("c", 50*time.Millisecond)}, 0,
			"a: it is a standby; b: connection refused; c: no answer within 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := proxy.NewServer(c.up, nil)
			defer server.Close()
			for range 2 {
				got, err := server.Reach(t.Context(), true)
				if c.err != "" {
					if err == nil || err.Error() != c.err {
						t.Errorf("got %v, want %s", err, c.err)
					}
					continue
				}
				if err != nil || got != c.want {
					t.Errorf("got %d, %v, want %d", got, err, c.want)
				}
			}
		})
	}
}

// The answer is good for a while, and asked for anew on demand.
func TestServer_ReachAgain(t *testing.T) {
	var moved atomic.Bool
	var asked atomic.Int32
	here := func(there bool) func(context.Context) (proxy.Standing, error) {
		return func(context.Context) (proxy.Standing, error) {
			asked.Add(1)
			if moved.Load() != there {
				return proxy.Standing{Why: "it is a standby"}, nil
			}
			return proxy.Standing{Fit: proxy.FitYes}, nil
		}
	}
	server := proxy.NewServer(proxy.Upstream{{Name: "a", Ask: here(false)}, {Name: "b", Ask: here(true)}}, nil)
	defer server.Close()
	reach := func(fresh bool, want int) {
		t.Helper()
		if got, err := server.Reach(t.Context(), fresh); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	reach(false, 0)
	before := asked.Load()
	moved.Store(true)
	reach(false, 0)
	if got := asked.Load(); got != before {
		t.Errorf("asked %d times more, want none", got-before)
	}
	reach(true, 1)
	poll.Until(t, "it is asked anew by itself", func() bool {
		reach(false, 1)
		return asked.Load() > before+2
	})
}

// Where any server will do, one that refuses the connection, says nothing or
// can't take a session now is passed over; what another one refuses is
// PostgreSQL's word.
func TestServer_AnyHost(t *testing.T) {
	silent := fakeBackend(t, func(p *peer) { p.read() })
	says := func(code, message string) string {
		return fakeBackend(t, func(p *peer) {
			p.conn.Write(wire.AppendError(nil, wire.Report{Severity: "FATAL", Code: code, Message: message}))
		})
	}
	down := listen(t)
	down.Close()
	starting, full := says("57P03", "the database system is starting up"), says("53300", "sorry, too many clients already")
	for _, c := range []struct {
		name  string
		addrs []string
		want  string
	}{
		{"down", []string{down.Addr().String(), full}, "53300 sorry"},
		{"silent", []string{silent, full}, "53300 sorry"},
		{"starting up", []string{starting, full}, "53300 sorry"},
		{"full", []string{full, starting}, "53300 sorry"},
		{"starting up, at last", []string{down.Addr().String(), starting}, "57P03 the database system is starting up"},
		{"all down", []string{down.Addr().String(), down.Addr().String()}, "08006 fenceproxy cannot reach PostgreSQL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var up proxy.Upstream
			for _, addr := range c.addrs {
				up = append(up, proxy.TCP(addr)...)
				up[len(up)-1].Timeout = 200 * time.Millisecond
			}
			p := dialPeer(t, before(t, "", func(server *proxy.Server) { server.Upstream = up }))
			p.startup(3<<16, "user\x00app\x00")
			if got := p.told(t); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A session that lands on a server that has become a standby since it was asked
// is refused; one whose server still fits goes on.
func TestServer_Landed(t *testing.T) {
	backend := func(standby string) string {
		return fakeBackend(t, func(p *peer) {
			p.conn.Write([]byte(auth(0, "") + string(frame('S', "in_hot_standby\x00"+standby+"\x00")) + "Z\x00\x00\x00\x05I"))
			p.read()
		})
	}
	for _, c := range []struct {
		name, standby string
		later         proxy.Fit
		want          string
	}{
		{"as it was", "off", proxy.FitYes, ""},
		{"demoted", "on", proxy.FitNo, "57P03 PostgreSQL at db has become a standby: connect again"},
		{"a standby will do", "on", proxy.FitYes, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			ask := func(context.Context) (proxy.Standing, error) {
				if asked.Add(1) == 1 {
					return proxy.Standing{Fit: proxy.FitYes}, nil
				}
				return proxy.Standing{Fit: c.later, Why: "it is a standby", Standby: c.standby == "on"}, nil
			}
			up := proxy.TCP(backend(c.standby))
			up[0].Name, up[0].Ask = "db", ask
			p := dialPeer(t, before(t, "", func(server *proxy.Server) { server.Upstream = up }))
			p.startup(3<<16, "user\x00app\x00")
			if c.want != "" {
				if got := p.told(t); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				return
			}
			for {
				kind, _, err := p.read()
				if err != nil {
					t.Fatal(err)
				}
				if kind == wire.ReadyForQuery {
					break
				}
			}
		})
	}
}
