package proxy_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
)

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
			before := samples.Of(t, server.Metrics.Tagged)["sessions_tagged_total"]
			conn := s.session(0, "", 0)
			for _, sql := range c.sqls {
				if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil && code(err) != "LF002" {
					t.Errorf("%s: %v", sql, err)
				}
			}
			if got := samples.Of(t, server.Metrics.Tagged)["sessions_tagged_total"] - before; got != c.want {
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
		if got := samples.Of(t, server.Metrics.Refusals)["refusals_total "+label]; got != want {
			t.Errorf("code %s: got %v, want %v", label, got, want)
		}
	}
}

// Each thing that a session does moves the samples that are meant to tell of it.
func TestMetrics_Move(t *testing.T) {
	var server *proxy.Server
	s := newStack(t, 0)
	reg := prometheus.NewPedanticRegistry()
	s.addProxy(s.pg.Addr(), func(p *proxy.Server) {
		server = p
		p.Metrics = proxy.NewMetrics(reg)
		reg.MustRegister(p)
	})
	s.holders.hold("k", 1)
	conn := s.session(0, "", 0)
	for _, c := range []struct {
		name string
		sqls []string
		grew map[string]bool
	}{
		{"a statement", []string{"SELECT 1"}, map[string]bool{"bytes_total client_to_proxy": true, "bytes_total proxy_to_postgres": true, "bytes_total postgres_to_proxy": true, "bytes_total proxy_to_client": true, "fenced_transactions": false}},
		{"an untagged duplicate", []string{"INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (1, 'a')"}, map[string]bool{"duplicate_inserts_total": false}},
		{"a tag", []string{"SET fence.key = 'k'; SET fence.token = 1"}, map[string]bool{"sessions_tagged_total": true, "critical_section_seconds": false, "fenced_transactions": false}},
		{"a tagged duplicate", []string{"INSERT INTO t VALUES (1, 'a')"}, map[string]bool{"duplicate_inserts_total": true, "checks_total early": true, "critical_section_seconds": false}},
		{"another error", []string{"SELECT 1/0"}, map[string]bool{"duplicate_inserts_total": false}},
		{"a transaction", []string{"BEGIN", "SELECT pg_sleep(0.01)"}, map[string]bool{"fenced_transactions": true, "fenced_transaction_oldest_seconds": true}},
		{"its going on", []string{"SELECT pg_sleep(0.01)"}, map[string]bool{"fenced_transactions": false, "fenced_transaction_oldest_seconds": true}},
		{"its end, and the tag's", []string{"COMMIT", "RESET fence.key; RESET fence.token"}, map[string]bool{"critical_section_seconds": true, "fenced_transactions": false}},
		{"a tag for a transaction", []string{"BEGIN; SET LOCAL fence.tokens = '{\"k\": 1}'; COMMIT"}, map[string]bool{"critical_section_seconds": true}},
		{"a tag that is rolled back", []string{"BEGIN; SET fence.tokens = '{\"k\": 1}'; ROLLBACK"}, map[string]bool{"critical_section_seconds": true}},
		{"a code of the protocol's", []string{"DO $$ BEGIN RAISE SQLSTATE '08P01'; END $$"}, map[string]bool{"protocol_errors_total 08P01": true}},
		{"a code that looks like one", []string{"DO $$ BEGIN RAISE SQLSTATE '08XYZ'; END $$"}, map[string]bool{"protocol_errors_total 08XYZ": false, "protocol_errors_total 08000": true}},
	} {
		before := samples.Gather(t, reg)
		for _, sql := range c.sqls {
			_, _ = conn.PgConn().Exec(t.Context(), sql).ReadAll()
		}
		for name, want := range c.grew {
			if want { // what has been written is counted behind that
				poll.Until(t, c.name+": growth of "+name, func() bool { return samples.Gather(t, reg)[name] > before[name] })
			} else if after := samples.Gather(t, reg); after[name] > before[name] {
				t.Errorf("%s: %s went from %v to %v", c.name, name, before[name], after[name])
			}
		}
	}
	before := samples.Gather(t, reg)
	s.tag(conn, "k", 1)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "the end of the session ends its section, and its bytes stay", func() bool {
		after := samples.Gather(t, reg)
		return after["critical_section_seconds"] == before["critical_section_seconds"]+1 && server.Sessions() == 0 &&
			after["bytes_total client_to_proxy"] > before["bytes_total client_to_proxy"]
	})
}
