package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/live"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/samples"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A nameTaker is a prometheus.Registerer that only notes names.
type nameTaker struct{ names []string }

func (n *nameTaker) Register(c prometheus.Collector) error { n.MustRegister(c); return nil }

func (n *nameTaker) Unregister(prometheus.Collector) bool { return false }

func (n *nameTaker) MustRegister(collectors ...prometheus.Collector) {
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range collectors {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			c.Describe(descriptions)
		}()
		for d := range descriptions {
			n.names = append(n.names, name.FindStringSubmatch(d.String())[1])
		}
	}
}

// everyMetric is what the code has, the holders' own among it.
func everyMetric(t *testing.T) []string {
	t.Helper()
	var taker nameTaker
	registerAll(t, &taker)
	slices.Sort(taker.names)
	return taker.names
}

// registerAll registers all that there is, as it begins.
func registerAll(t *testing.T, registry prometheus.Registerer) {
	t.Helper()
	server := proxy.NewServer(nil, nil)
	t.Cleanup(func() { server.Close() })
	proxy.NewMetrics(registry)
	logger := slog.New(slog.DiscardHandler)
	observer := newClaimObserver(logger, registry, live.NewJournal())
	newTimedAuthority(registry)
	newKeeper(nil, nil, observer.alarm, logger, registry)
	newSpanCounter(registry)
	registry.MustRegister(server, leases.NewMetrics(), lockWatchSilence(func() (time.Duration, bool) { return 0, false }))
}

// Each series that an alert or a panel picks by a label is there from the start, for
// Prometheus sees no increase in one that begins with 1.
func TestMetrics_BeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	registerAll(t, registry)
	begun := samples.Gather(t, registry)
	for _, name := range everyMetric(t) {
		name = strings.TrimPrefix(name, "fenceproxy_")
		// These two are of databases, which are known once they are used.
		if name == "lineage_mismatch" || name == "etcd_behind_marks_revisions" {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(begun)), func(series string) bool { return series == name || strings.HasPrefix(series, name+" ") }) {
			t.Errorf("%s has no series before it counts", name)
		}
	}
	selector := regexp.MustCompile(`fenceproxy_([a-z_]+?)(?:_bucket|_count|_sum)?\{([^}]*)\}`)
	label := regexp.MustCompile(`(?:code|result|outcome|action|victim|phase)=~?\\?"([^"\\]+)`)
	picked := 0
	for _, page := range []string{"deploy/prometheus/rules/fenceproxy.yml", "deploy/grafana/dashboards/fenceproxy.json"} {
		for _, found := range selector.FindAllStringSubmatch(read(t, page), -1) {
			for _, values := range label.FindAllStringSubmatch(found[2], -1) {
				for value := range strings.SplitSeq(values[1], "|") {
					picked++
					if !slices.ContainsFunc(slices.Collect(maps.Keys(begun)), func(series string) bool {
						name, labels, _ := strings.Cut(series, " ")
						return name == found[1] && slices.Contains(strings.Fields(labels), value)
					}) {
						t.Errorf("%s: there is no series of %s with %s before it counts", page, found[1], value)
					}
				}
			}
		}
	}
	if picked < 8 {
		t.Errorf("got %d labels that are picked by, which are too few: this proves nothing", picked)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../" + path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/metrics.md has each metric of the code, and no other.
func TestMetrics_Documented(t *testing.T) {
	var got []string
	for _, line := range regexp.MustCompile("(?m)^\\| `(fenceproxy_[a-z_]+)` \\|").FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		got = append(got, line[1])
	}
	slices.Sort(got)
	if want := everyMetric(t); !slices.Equal(got, want) {
		t.Errorf("docs/metrics.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What the dashboard, the alerts and the README name is there, and each alert's
// runbook is where its name says.
func TestMetrics_Named(t *testing.T) {
	known := everyMetric(t)
	const plain = `\bfenceproxy_[a-z_]*[a-z]`
	names := map[string]string{"the dashboard": plain, "the rules": plain, "README.md": "`fenceproxy_[a-z_]+`"}
	rules := read(t, "deploy/prometheus/rules/fenceproxy.yml")
	texts := map[string]string{
		"the dashboard": read(t, "deploy/grafana/dashboards/fenceproxy.json"), "the rules": rules, "README.md": read(t, "README.md"),
	}
	for where, text := range texts {
		found := regexp.MustCompile(names[where]).FindAllString(text, -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", where)
		}
		for _, name := range found {
			name = strings.Trim(name, "`")
			base := regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(name, "")
			if !slices.Contains(known, name) && !slices.Contains(known, base) {
				t.Errorf("%s names %s, which isn't there", where, name)
			}
		}
	}
	alerts := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	anchors := regexp.MustCompile(`(?m)runbook_url: \S+docs/runbook\.md#(\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) != len(anchors) || len(alerts) == 0 {
		t.Fatalf("got %d alerts and %d runbooks, want as many", len(alerts), len(anchors))
	}
	runbook := read(t, "docs/runbook.md")
	for i, alert := range alerts {
		if !strings.Contains(runbook, "\n### "+alert[1]+"\n") {
			t.Errorf("docs/runbook.md has no section %s", alert[1])
		}
		if got, want := anchors[i][1], strings.ToLower(alert[1]); got != want {
			t.Errorf("%s: got anchor %s, want %s", alert[1], got, want)
		}
	}
}

// What claims and verifications do moves the samples that tell of it, and the
// page keeps Prometheus' conventions.
func TestServe_MetricsMove(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	lease := hold(t, s.Client, "order:1")
	exec1(t, open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...), "CREATE TABLE t (i int)")
	refused := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token()+1000)...)
	if _, err := refused.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err == nil {
		t.Error("got no refusal of a token that nobody holds")
	}
	s.Etcd.Close()
	away := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), tagged("order:2", 1)...)
	if _, err := away.Exec(t.Context(), "INSERT INTO t VALUES (1)"); code(err) != "LF003" {
		t.Errorf("etcd away: got %v, want LF003", err)
	}
	var body string
	poll.Until(t, "the last claim is counted", func() bool {
		_, body = get(t, p, "/metrics")
		return regexp.MustCompile(`fenceproxy_claims_total\{code="LF003",outcome="refused"\} [1-9]`).MatchString(body)
	})
	for _, want := range []string{
		`fenceproxy_claim_phase_seconds_count{phase="verify"} `,
		`fenceproxy_claim_phase_seconds_count{phase="raise"} 1`,
		`fenceproxy_etcd_verify_seconds_count{result="confirmed"} 1`,
		`fenceproxy_etcd_verify_seconds_count{result="refused"} `,
		`fenceproxy_etcd_verify_seconds_count{result="unavailable"} `,
		`fenceproxy_timeline_changes_total 0`, `fenceproxy_lineage_changes_total 0`,
		`fenceproxy_bytes_total{direction="client_to_proxy"} `,
	} {
		if !strings.Contains(body, want) || strings.Contains(body, want+"0\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "fenceproxy_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

// A failover and an adopted lineage are counted once, whatever order claims on
// the old and on the new server end in; the first of each is none.
func TestClaimObserver_Changes(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := newClaimObserver(slog.New(slog.DiscardHandler), registry, live.NewJournal())
	for _, c := range []struct {
		name, timeline    string
		epoch             int32
		timelines, epochs float64
	}{
		{"the first", "7/1", 1, 0, 0},
		{"another claim", "7/1", 1, 0, 0},
		{"one that didn't come to PostgreSQL", "", 0, 0, 0},
		{"a failover", "7/2", 1, 1, 0},
		{"a late one of the old primary", "7/1", 1, 1, 0},
		{"an adopted lineage", "7/2", 2, 1, 1},
	} {
		o.ClaimDone(fencing.ClaimReport{Database: "app", Outcome: fencing.OutcomeHeld, Timeline: c.timeline, Epoch: c.epoch})
		got := samples.Gather(t, registry)
		if got["timeline_changes_total"] != c.timelines || got["lineage_changes_total"] != c.epochs {
			t.Errorf("%s: got %v timelines and %v lineages, want %v and %v", c.name, got["timeline_changes_total"],
				got["lineage_changes_total"], c.timelines, c.epochs)
		}
	}
	for behind, revision := range map[float64]int64{0: 50, 3: 47} {
		o.alarm.compared("app", fencing.Lineage{Epoch: 2, Cluster: "c", Highest: 50}, "c", revision)
		if got := samples.Gather(t, registry)["etcd_behind_marks_revisions app"]; got != behind {
			t.Errorf("revision %d: got %v behind, want %v", revision, got, behind)
		}
	}
}
