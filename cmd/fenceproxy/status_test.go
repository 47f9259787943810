package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A statusReport is what status --json says, as a reader of it has it.
type statusReport struct {
	PostgreSQL struct {
		Error string
		Marks int
		Epoch int
	}
	Etcd *struct {
		Error string
		Held  int `json:"locks_held"`
	}
	Proxy *struct {
		Error    string
		Ready    bool
		Sessions int
		Tagged   int `json:"sessions_tagged"`
		Refusals map[string]int
	}
	Locks []struct {
		Key, State   string
		Mark, Holder int64
		Left         float64 `json:"lease_left_seconds"`
		Waiting      int
		Age          *float64 `json:"claimed_seconds_ago"`
	}
}

// statusOf runs status --json; exit is its exit status.
func statusOf(t *testing.T, args ...string) (s statusReport, exit int) {
	t.Helper()
	out, err := command(t, "", append([]string{"status", "--json"}, args...)...)
	var status exitStatus
	if err != nil && !errors.As(err, &status) || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("got %v, %q", err, out)
	}
	return s, int(status)
}

func TestStatus(t *testing.T) {
	s := stack.New(t, "app")
	p := serveOn(t, s)
	held, unclaimed, free := hold(t, s.Client, "a/held"), hold(t, s.Client, "unclaimed"), hold(t, s.Client, "free")
	claim := func(key string, token int64) {
		t.Helper()
		open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), "fence.tokens", `{"`+key+`": `+fmt.Sprint(token)+`}`)
	}
	claim("a/held", int64(held.Token()))
	claim("free", int64(free.Token()))
	lose(t, s.Client, "free")
	super := open(t, s.DSN(postgres.Superuser, "app"))
	exec1(t, super, "INSERT INTO fence.mark SELECT 'gone:' || i, 1, '', 1, now() - i * interval '1 day', '' FROM generate_series(1, 50) AS i")
	exec1(t, super, "INSERT INTO fence.mark VALUES ('of old', 1, '', 0, now() - interval '90 minutes', '')")
	if _, err := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"), "fence.tokens", `{"free": 1}`).Exec(t.Context(), "SELECT 1"); code(err) == "" {
		t.Fatal("a token of nobody's was accepted")
	}

	args := []string{"--upstream", s.DSN(stack.RoleFence, "app"), "--etcd", s.Etcd.Endpoint(), "--admin", p.Admin, "--limit", "4"}
	got, exit := statusOf(t, args...)
	if exit != 0 || got.PostgreSQL.Marks != 53 || got.PostgreSQL.Epoch != 1 || got.Etcd == nil || got.Etcd.Held != 2 {
		t.Fatalf("got exit %d, %+v, want 53 marks and 2 held locks", exit, got)
	}
	if pr := got.Proxy; pr == nil || pr.Error != "" || !pr.Ready || pr.Sessions != 3 || pr.Tagged < 2 || len(pr.Refusals) == 0 {
		t.Errorf("got %+v, want a proxy with 3 sessions that has refused something", pr)
	}
	var lines []string
	for _, l := range got.Locks {
		lines = append(lines, l.Key+" "+l.State)
		if (l.Holder > 0) != (l.Left > 0) || (l.Mark > 0) != (l.Age != nil) {
			t.Errorf("got %+v, want a lease with a holder, and an age with a mark", l)
		}
	}
	if got, want := strings.Join(lines, ", "), "a/held held, unclaimed unclaimed, free free, of old old, gone:1 free"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l := got.Locks[0]; l.Mark != int64(held.Token()) || l.Holder != l.Mark {
		t.Errorf("got %+v, want token %d", l, held.Token())
	}
	if l := got.Locks[1]; l.Mark != 0 || l.Holder != int64(unclaimed.Token()) {
		t.Errorf("got %+v, want holder %d and no mark", l, unclaimed.Token())
	}
	if got, _ := statusOf(t, append(args, "--key", "gone:40")...); len(got.Locks) != 1 || got.Locks[0].Key != "gone:40" {
		t.Errorf("one key: got %+v", got.Locks)
	}

	text, err := command(t, "", append([]string{"status"}, args...)...)
	for _, want := range []string{"(database app): 53 marks, lineage epoch 1\n", "locks held: 2\n", ": ready, sessions: 3; since its start: ",
		"\nKEY        STATE      MARK  HOLDER  LEASE  WAITING  CLAIMED\na/held     held ", "\nof old     old        1     -       -      -        1h ago\n", "24h ago\n"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("got %v\n%s\nwant %q in it", err, text, want)
		}
	}

	exec1(t, super, "UPDATE pg_class SET reltuples = 250000 WHERE oid = 'fence.mark'::regclass")
	text, err = command(t, "", append([]string{"status"}, args...)...)
	if want := "(database app): about 250000 marks, lineage epoch 1\n"; err != nil || !strings.Contains(text, want) {
		t.Errorf("many marks: got %v\n%s\nwant %q in it", err, text, want)
	}

	exec1(t, super, "UPDATE fence.mark SET token = 1000 WHERE resource_key = 'a/held'")
	if got, _ := statusOf(t, args...); got.Locks[0].State != "behind" {
		t.Errorf("a mark above the holder: got %+v, want behind", got.Locks[0])
	}
}

// What doesn't answer is named, and the rest is shown.
func TestStatus_Away(t *testing.T) {
	s := stack.New(t, "app")
	dsn, away := s.DSN(stack.RoleFence, "app"), "127.0.0.1:1"
	got, exit := statusOf(t, "--upstream", dsn, "--etcd", "http://"+away, "--admin", away)
	if exit != 1 || got.Etcd == nil || got.Etcd.Error == "" || got.Proxy == nil || !strings.Contains(got.Proxy.Error, "refused") || got.PostgreSQL.Error != "" {
		t.Errorf("etcd and proxy away: got exit %d, %+v", exit, got)
	}
	got, exit = statusOf(t, "--upstream", "postgres://fence:hunter2@"+away+"/app", "--etcd", s.Etcd.Endpoint())
	if exit != 1 || !strings.Contains(got.PostgreSQL.Error, away) || strings.Contains(got.PostgreSQL.Error, "hunter2") || got.Etcd == nil || got.Etcd.Error != "" {
		t.Errorf("PostgreSQL away: got exit %d, %+v", exit, got)
	}
	etcd := strings.TrimPrefix(s.Etcd.Endpoint(), "http://")
	if got, exit = statusOf(t, "--upstream", dsn, "--admin", etcd); exit != 1 || got.Etcd != nil || !strings.Contains(got.Proxy.Error, "not as a fenceproxy's admin port") {
		t.Errorf("not a proxy: got exit %d, %+v", exit, got)
	}
}
