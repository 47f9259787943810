package idle_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/idle"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

const (
	database = "app"
	// settleFor is how long the proxy's memory is watched after the last
	// query: what was freed goes back to the system little by little.
	settleFor = 30 * time.Second
)

// BenchmarkSession_Idle opens IDLE_SESSIONS sessions (5000) through
// a proxy in a process of its own, has each of them work, and tells what they
// cost once all are idle: how much the proxy's resident memory has grown, over
// the number of sessions.
func BenchmarkSession_Idle(b *testing.B) {
	n := sessions(b)
	s, err := stack.Start(b.Context(), stack.Options{Postgres: postgres.Options{Config: []string{
		fmt.Sprintf("max_connections = %d", n+100), "shared_buffers = 16MB", "autovacuum = off", "jit = off",
	}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := errors.Join(s.CreateDatabase(b.Context(), database), s.Install(b.Context(), database)); err != nil {
		b.Fatal(err)
	}
	letReadSecrets(b, s)
	ca := certs.New(b)
	cert, key := ca.Files(ca.Leaf("fenceproxy"))
	program := build(b)
	for _, c := range []struct {
		name   string
		flags  []string
		config func(*pgx.ConnConfig)
	}{
		{"plain", nil, func(*pgx.ConnConfig) {}},
		{"tagged", nil, tagged(b, s)},
		{"TLS", []string{"--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key}, func(c *pgx.ConnConfig) {
			c.TLSConfig = &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p, err := s.StartProcess(b.Context(), database, []string{program}, c.flags...)
				if err != nil {
					b.Fatal(err)
				}
				config, err := pgx.ParseConfig(s.ProxyDSN(p.Addr, stack.RoleApp, database))
				if err != nil {
					b.Fatal(err)
				}
				c.config(config)
				measure(b, p, config, n)
				p.Kill()
			}
		})
	}
}

func sessions(b *testing.B) int {
	b.Helper()
	text, ok := os.LookupEnv("IDLE_SESSIONS")
	if !ok {
		return 5000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("IDLE_SESSIONS=%s: a number of sessions is expected", text)
	}
	return n
}

// build makes the program, or takes the one that IDLE_PROGRAM names.
func build(b *testing.B) string {
	b.Helper()
	if program := os.Getenv("IDLE_PROGRAM"); program != "" {
		return program
	}
	program := filepath.Join(b.TempDir(), "fenceproxy")
	cmd := exec.Command("go", "build", "-o", program, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build fenceproxy: %v: %s", err, out)
	}
	return program
}

// letReadSecrets lets the proxy verify passwords over TLS.
func letReadSecrets(b *testing.B, s *stack.Stack) {
	b.Helper()
	admin, err := pgx.Connect(b.Context(), s.DSN(postgres.Superuser, database))
	if err != nil {
		b.Fatal(err)
	}
	defer admin.Close(context.Background())
	if _, err := admin.Exec(b.Context(), "GRANT SELECT (rolname, rolpassword) ON pg_authid TO "+stack.RoleFence); err != nil {
		b.Fatal(err)
	}
}

// tagged returns how sessions present a lock that is held.
func tagged(b *testing.B, s *stack.Stack) func(*pgx.ConnConfig) {
	b.Helper()
	lease, err := leases.NewLocker(s.Client).Acquire(b.Context(), "idle")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = lease.Release(context.Background()) })
	return func(c *pgx.ConnConfig) {
		c.RuntimeParams["fence.key"] = "idle"
		c.RuntimeParams["fence.token"] = fmt.Sprint(lease.Token())
	}
}

// measure reports what n sessions cost.
func measure(b *testing.B, p *stack.Process, config *pgx.ConnConfig, n int) {
	b.Helper()
	g, err := idle.Measure(b.Context(), p.PID(), config, n, settleFor)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(g.AtOnce/1024, "kB/session-at-once")
	b.ReportMetric(g.Settled/1024, "kB/session")
	b.ReportMetric(g.Before/1024, "kB-before")
}
