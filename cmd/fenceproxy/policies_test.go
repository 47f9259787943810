package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// policiesOf reads the policies of a configured command.
func policiesOf(t *testing.T, cmd *cobra.Command) proxy.Policies {
	t.Helper()
	flags := policyFlags{rules: *cmd.Flags().Lookup(policiesFlag).Value.(*policyRules)}
	flags.untagged.value = cmd.Flags().Lookup("untagged-writes").Value.String()
	flags.fencing.value = cmd.Flags().Lookup("fencing").Value.String()
	all, err := flags.policies()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The rules are the same on the command line, in a variable and in the file,
// and each of these wins over the next as a whole.
func TestPolicies_Configure(t *testing.T) {
	const list = "[{database: app, role: billing, untagged_writes: reject}, {role: 'mig*', fencing: live}]"
	const other = "[{role: other, untagged_writes: allow}]"
	want := fmt.Sprint(proxy.Policies{
		Default: proxy.Policy{UntaggedWrites: proxy.ObserveUntagged, Fencing: proxy.FenceIssued},
		Rules: []proxy.Rule{
			{Database: "app", Role: "billing", Policy: proxy.Policy{UntaggedWrites: proxy.RejectUntagged, Fencing: proxy.FenceIssued}},
			{Role: "mig*", Policy: proxy.Policy{UntaggedWrites: proxy.ObserveUntagged, Fencing: proxy.FenceLive}},
		},
	})
	const standard = "untagged_writes: observe\nfencing: issued\n"
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		args []string
	}{
		"flag":     {map[string]string{"FENCEPROXY_POLICIES": other}, standard + "policies: " + other, []string{"--policies", list}},
		"variable": {map[string]string{"FENCEPROXY_POLICIES": list}, standard + "policies: " + other, nil},
		"file":     {nil, standard + "policies:\n- database: app\n  role: billing\n  untagged_writes: reject\n- {role: 'mig*', fencing: live}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, err := configured(t, c.env, c.file, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(policiesOf(t, cmd)); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestPolicies_Default(t *testing.T) {
	cmd, err := configured(t, nil, "policies: []")
	if err != nil {
		t.Fatal(err)
	}
	if got := policiesOf(t, cmd); got.Default != (proxy.Policy{}) || len(got.Rules) != 0 || got.Follow() {
		t.Errorf("got %v, want the laxest and no rules", got)
	}
}

func TestPolicies_Errors(t *testing.T) {
	for name, c := range map[string]struct{ list, want string }{
		"no list":        {"{role: a}", "a list of rules is expected"},
		"a word":         {"reject", "a list of rules is expected"},
		"nothing":        {"''", "a list of rules is expected"},
		"no mapping":     {"[reject]", "rule 1: a mapping is expected"},
		"unknown key":    {"[{role: a, untagged: reject}]", "rule 1: untagged: no such setting"},
		"misspelled key": {"[{rolle: a, fencing: live}]", "rule 1: rolle: no such setting; did you mean role?"},
		"unknown value":  {"[{role: a, fencing: alive}]", `rule 1: fencing: "alive" is none of accepted, issued, live`},
		"another value":  {"[{role: a, untagged_writes: live}]", `rule 1: untagged_writes: "live" is none of allow, observe, reject`},
		"null":           {"[{role: , fencing: live}]", "rule 1: role: a value is expected"},
		"a list in it":   {"[{role: [a, b], fencing: live}]", "rule 1: role: a value is expected"},
		"twice":          {"[{role: a, role: b, fencing: live}]", "rule 1: role: stands there twice"},
		"sets nothing":   {"[{role: a}]", "rule 1: it sets neither untagged_writes nor fencing"},
		"names nobody":   {"[{fencing: live}]", "rule 1: it names neither a database nor a role"},
		"too long":       {"[{role: " + strings.Repeat("a", 64) + ", fencing: live}]", "rule 1: role: no name in PostgreSQL has over 63 bytes"},
		"never reached":  {"[{role: a, fencing: live}, {role: b, fencing: live}, {role: a, untagged_writes: allow}]", "rule 3: it is never reached: rule 1 is for the same sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			for where, do := range map[string]func() error{
				"fence.yaml:2: policies: ": func() error { _, err := configured(t, nil, "listen: 127.0.0.1:1\npolicies: "+c.list); return err },
				"--policies: ":             func() error { _, err := configured(t, nil, "", "--policies", c.list); return err },
				"FENCEPROXY_POLICIES: ": func() error {
					_, err := configured(t, map[string]string{"FENCEPROXY_POLICIES": c.list}, "")
					return err
				},
			} {
				err := do()
				var usage *usageError
				if !errors.As(err, &usage) || !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want a usage error with %q and %q", err, where, c.want)
				}
			}
		})
	}
	_, err := configured(t, nil, "", "--untagged-writes", "refuse")
	if err == nil || !strings.Contains(err.Error(), `--untagged-writes: bad value "refuse": one of allow, observe, reject is expected`) {
		t.Errorf("got %v", err)
	}
}

// Each of the three meanings of fencing, with a real etcd: the holder's lease is
// revoked, and then somebody else takes the lock and claims nothing.
func TestServe_Fencing(t *testing.T) {
	s := newServed(t)
	p := serveOn(t, s, "--policies", "[{role: app, fencing: issued}, {role: fence, fencing: live}]")
	app, live, accepted := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app")), open(t, s.ProxyDSN(p.Addr, stack.RoleFence, "app")), open(t, s.ProxyDSN(p.Addr, "postgres", "app"))
	locker := leases.NewLocker(s.Client)
	lease, err := locker.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*pgx.Conn{"accepted": accepted, "issued": app, "live": live}
	for name, conn := range all {
		exec1(t, conn, fmt.Sprintf("SET fence.key = 'order:1'; SET fence.token = %d", lease.Token()))
		if got := write(t, conn); got != "" {
			t.Fatalf("%s: the holder: got %s", name, got)
		}
	}
	if _, err := s.Client.Revoke(t.Context(), lease.ID()); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, "live: the lost lease is told", func() bool { return write(t, live) == "LF001" })
	for _, name := range []string{"issued", "accepted"} {
		if got := write(t, all[name]); got != "" {
			t.Errorf("%s, without a newer holder: got %s", name, got)
		}
	}
	next, err := locker.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release(context.WithoutCancel(t.Context()))
	poll.Until(t, "issued: the newer holder is told", func() bool { return write(t, app) == "LF001" })
	if got := write(t, accepted); got != "" {
		t.Errorf("accepted, without a higher claim: got %s", got)
	}
	if _, metrics := get(t, p, "/metrics"); !strings.Contains(metrics, "fenceproxy_lock_watch_silent_seconds ") || strings.Contains(metrics, "silent_seconds +Inf") {
		t.Errorf("the watch's metric is missing or says that there is none")
	}
	// A session that connects anew with the token of long ago is told too,
	// though the proxy has verified that very token before.
	again := open(t, s.ProxyDSN(p.Addr, stack.RoleFence, "app"), tagged("order:1", lease.Token())...)
	if got := write(t, again); got != "LF001" {
		t.Errorf("a new session with the old token: got %q, want LF001", got)
	}
}

// etcd's absence changes nothing for a holder, whatever the policy.
func TestServe_FencingWithoutEtcd(t *testing.T) {
	s := newServed(t)
	p := serveOn(t, s, "--fencing", "live")
	conn := open(t, s.ProxyDSN(p.Addr, stack.RoleApp, "app"))
	lease, err := leases.NewLocker(s.Client).Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, conn, fmt.Sprintf("SET fence.key = 'order:1'; SET fence.token = %d", lease.Token()))
	s.Etcd.Close()
	for range 3 {
		if got := write(t, conn); got != "" {
			t.Errorf("the holder, without etcd: got %s", got)
		}
	}
}

// newServed is a stack with a database that serve can protect, and a table that
// everybody may write to.
func newServed(t *testing.T) *stack.Stack {
	t.Helper()
	s := stack.New(t)
	if err := s.CreateDatabase(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	if err := s.Install(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	exec1(t, open(t, s.DSN("postgres", "app")), "CREATE TABLE written (at timestamptz); GRANT ALL ON written TO PUBLIC")
	return s
}

// write writes a row, and returns the SQLSTATE of the refusal.
func write(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), "INSERT INTO written VALUES (now())")
	if err == nil {
		return ""
	}
	return code(err)
}
