package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// Clients encrypt towards serve, passwords are verified, and a certificate
// that changes is shown without a restart.
func TestServe_ClientTLS(t *testing.T) {
	s := stack.New(t, "app")
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("first"))
	p := serveOn(t, s, "--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key)
	dsn := s.ProxyDSN(p.Addr, stack.RoleApp, "app")
	if conn, err := pgx.Connect(context.Background(), dsn+"&sslmode=disable"); err == nil {
		conn.Close(context.Background())
		t.Error("connected without encryption")
	}
	shown := func() string {
		t.Helper()
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.TLSConfig, config.Fallbacks = &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}, nil
		conn, err := pgx.ConnectConfig(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		exec1(t, conn, "SELECT 1")
		return conn.PgConn().Conn().(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "first" {
		t.Errorf("got the certificate of %q, want first", got)
	}
	newCert, newKey := ca.Files(ca.Leaf("second"))
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, "the new certificate", func() bool { return shown() == "second" })
	if err := os.WriteFile(cert, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != "second" {
		t.Errorf("after the file was damaged: got the certificate of %q, want second", got)
	}
	poll.Until(t, "a word about it", func() bool { return strings.Contains(p.Log(), "certificate not reloaded") })
}

func TestServe_ClientTLSErrors(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("proxy"))
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, pem.EncodeToMemory(&pem.Block{Type: "NOTHING"}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--client-tls", "perhaps"}, 2, "--client-tls"},
		{[]string{"--client-tls", "require"}, 2, "--client-tls-cert"},
		{[]string{"--client-tls-cert", cert}, 2, "--client-tls allow or require"},
		{[]string{"--client-tls", "allow", "--client-tls-cert", cert, "--client-tls-key", empty}, 1, "--client-tls-key"},
		{[]string{"--client-tls", "require", "--client-tls-cert", cert, "--client-tls-key", key, "--client-tls-ca", empty}, 1, "--client-tls-ca"},
		{[]string{"--client-tls", "allow", "--client-tls-cert", cert, "--client-tls-key", key, "--client-tls-ca", cert}, 2, "--client-tls-ca needs --client-tls require"},
	} {
		code, _, stderr := program(t, nil, append([]string{"serve", "--upstream", "postgres://fence@127.0.0.1:1/app", "--etcd", "http://127.0.0.1:1"}, c.flags...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") > 1 {
			t.Errorf("%v: got %d %q, want %d and %q", c.flags, code, stderr, c.code, c.want)
		}
	}
}
