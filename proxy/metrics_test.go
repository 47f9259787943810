package proxy_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// counted returns the value of a counter without labels.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// A session is counted as tagged once, when it presents a pair of a key and a
// token, whatever becomes of it, and not when it only might.
func TestMetrics_Tagged(t *testing.T) {
	var server *proxy.Server
	s := newStack(t, 0)
	s.addProxy(s.pg.Addr(), func(p *proxy.Server) { server = p })
	s.holders.hold("k", 1)
	for _, c := range []struct {
		name string
		sqls []string
		want float64
	}{
		{"a setting of some name", []string{"SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'application_name'"}, 0},
		{"half a tag", []string{"SET fence.key = 'k'", "RESET fence.key"}, 0},
		{"a tag", []string{"SET fence.key = 'k'; SET fence.token = 1", "SELECT 1", "RESET ALL", "SET fence.key = 'k'; SET fence.token = 1"}, 1},
		{"for a transaction", []string{"BEGIN; SET LOCAL fence.tokens = '{\"k\": 1}'; COMMIT"}, 1},
		{"one that is refused", []string{"SET fence.key = 'k'; SET fence.token = 7"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := counted(t, server.Metrics.Tagged)
			conn := s.session(0, "", 0)
			for _, sql := range c.sqls {
				if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil && code(err) != "LF002" {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if got := counted(t, server.Metrics.Tagged) - before; got != c.want {
				t.Errorf("got %v more, want %v", got, c.want)
			}
		})
	}
}

// A check that isn't there is counted by the code that the client hears.
func TestMetrics_RefusalsMissingCheck(t *testing.T) {
	var server *proxy.Server
	s := newStack(t, 0)
	s.addProxy(s.pg.Addr(), func(p *proxy.Server) { server = p })
	s.holders.hold("k", 1)
	conn := s.session(0, "k", 1)
	s.exec("DROP FUNCTION fence.check(boolean)")
	_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1, 'a')")
	if got, want := code(err), "3F000"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for label, want := range map[string]float64{"3F000": 1, "42883": 0} {
		if got := counted(t, server.Metrics.Refusals.WithLabelValues(label)); got != want {
			t.Errorf("code %s: got %v, want %v", label, got, want)
		}
	}
}
