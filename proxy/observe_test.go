package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
)

// untaggedWrites returns the metric's value for an action.
func untaggedWrites(t *testing.T, server *proxy.Server, action string) float64 {
	t.Helper()
	return samples.Of(t, server.Metrics.UntaggedWrites)["untagged_writes_total "+action]
}

// newObserving makes a stack with a proxy that observes untagged writes.
func newObserving(t *testing.T) (*stack, *logged) {
	t.Helper()
	log := &logged{}
	return newRejecting(t, func(server *proxy.Server) {
		log.by(server)
		server.Policies = proxy.Policies{Default: proxy.Policy{UntaggedWrites: proxy.ObserveUntagged}}
	}), log
}

func TestSession_ObservesUntagged(t *testing.T) {
	s, _ := newObserving(t)
	server := s.servers[0]
	for sql, want := range map[string]string{
		"INSERT INTO t VALUES (2, 'x') ON CONFLICT DO NOTHING": "observed",
		"DELETE FROM t WHERE id = 2":                           "observed",
		"VACUUM t":                                             "observed",
		"SELECT nextval('s')":                                  "observed",
		"SELECT reads()":                                       "unsure",
		"CALL looks()":                                         "unsure",
		"DO $$BEGIN PERFORM count(*) FROM t; END$$":            "unsure",
		"SELECT count(*) FROM t":                               "",
		"BEGIN":                                                "",
		"SET work_mem = '1MB'":                                 "",
		"DISCARD ALL":                                          "",
		"":                                                     "",
	} {
		for _, p := range protocols {
			t.Run(string(p)+"/"+sql, func(t *testing.T) {
				c := s.connect(s.as("app"))
				before := samples.Of(t, server.Metrics.UntaggedWrites)
				if err := p.run(t.Context(), c, sql); err != nil && sql != "VACUUM t" {
					t.Fatal(err)
				}
				for _, action := range []string{"observed", "unsure", "rejected"} {
					expected := 0.0
					if action == want {
						expected = 1
					}
					if got := untaggedWrites(t, server, action) - before["untagged_writes_total "+action]; got != expected {
						t.Errorf("%s: got %v, want %v", action, got, expected)
					}
				}
			})
		}
	}
}

// Nothing is told of a session while it has a tag, nor of what a failed block
// refuses; before and after that it is.
func TestSession_ObservesWithoutTag(t *testing.T) {
	s, _ := newObserving(t)
	server := s.servers[0]
	s.holders.hold("k", 7)
	const write = "UPDATE t SET v = 'one'"
	for _, p := range protocols {
		t.Run(string(p), func(t *testing.T) {
			c := s.connect(s.as("app"))
			for i, step := range []struct {
				sql  string
				want float64
			}{
				{write, 1},
				{"SET fence.key = 'k'", 0}, {"SET fence.token = 7", 0},
				{write, 0},
				{"RESET fence.key", 0}, {"RESET fence.token", 0},
				{write, 1},
				{"BEGIN", 0}, {"SELECT 1/0", 0}, {write, 0}, {"ROLLBACK", 0},
				{write, 1},
			} {
				before := untaggedWrites(t, server, "observed")
				_ = p.run(t.Context(), c, step.sql)
				if got := untaggedWrites(t, server, "observed") - before; got != step.want {
					t.Errorf("step %d, %s: got %v, want %v", i, step.sql, got, step.want)
				}
			}
		})
	}
}

// The log tells who writes, and nothing of what; the like once a minute.
func TestSession_LogsUntagged(t *testing.T) {
	s, log := newObserving(t)
	c := s.connect(s.as("app") + "&application_name=nightly")
	for i := range 20 {
		if err := simple.run(t.Context(), c, fmt.Sprintf("INSERT INTO t VALUES (%d, 'secret')", 200+i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = simple.run(t.Context(), c, "secret INTO t")
	line := log.line("untagged write", "action=observed", "statement=insert", "user=app", "database=postgres", "application_name=nightly", "unlogged=0")
	if line == "" {
		t.Errorf("no line of the log tells: %s", log.text.String())
	}
	if err := simple.run(t.Context(), c, "SET application_name = 'other'; DELETE FROM t WHERE id >= 200"); err != nil {
		t.Fatal(err)
	}
	if log.line("statement=other", "application_name=nightly", "unlogged=19") == "" {
		t.Errorf("nothing tells of those that were not logged: %s", log.text.String())
	}
	if err := simple.run(t.Context(), c, "DELETE FROM t WHERE id >= 200"); err != nil {
		t.Fatal(err)
	}
	if log.line("statement=delete", "application_name=other") == "" {
		t.Errorf("the new name of the application is not told: %s", log.text.String())
	}
	if text := log.text.String(); strings.Contains(text, "secret") || strings.Count(text, "statement=insert") != 1 {
		t.Errorf("got %s, want one line for the like, and no text of a statement", text)
	}
}

func TestMetrics_UntaggedRejected(t *testing.T) {
	s := newRejecting(t)
	c := s.connect(s.as("app"))
	for _, p := range protocols {
		if got, want := code(p.run(t.Context(), c, "SELECT writes()")), "LF004"; got != want {
			t.Errorf("%v: got %q, want %q", p, got, want)
		}
	}
	if got, want := untaggedWrites(t, s.servers[0], "rejected"), float64(len(protocols)); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
