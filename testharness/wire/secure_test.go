package wire_test

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/wire"
)

// TestScripts_Secure plays the scripts that speak of TLS and passwords, with a
// server and a proxy that show certificates of their own.
func TestScripts_Secure(t *testing.T) {
	newSecureRig(t, "lane1", "lane2", "lane3").playAll(t, scripts(t, "testdata/secure"), false)
}

// TestScripts_OverTLS plays the scripts whose sessions begin as usual once
// more, with TLS on every leg, and with sessions that rest whenever they can.
func TestScripts_OverTLS(t *testing.T) {
	var usual []*wire.Script
	for _, s := range scripts(t, "testdata") {
		plain := s.Unix != "" || slices.ContainsFunc(s.Steps, func(step wire.Step) bool { return step.Action == wire.ActDial })
		if !plain {
			usual = append(usual, s)
		}
	}
	newSecureRig(t, "lane1", "lane2", "lane3", "lane4").playAll(t, usual, true)
}

// newSecureRig starts a rig whose server asks each role for its password by
// the method that the role is named after. Both legs of the proxy can be
// encrypted.
func newSecureRig(t *testing.T, databases ...string) *rig {
	t.Helper()
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("db.example"))
	pg := postgres.New(t, postgres.Options{
		Config: append(settings(), "ssl = on", "ssl_cert_file = '"+cert+"'", "ssl_key_file = '"+key+"'"),
		HBA: []string{
			"host all clear all password", "host all long all password", "host all md5 all md5", "host all scram all scram-sha-256",
			"host all hashed all scram-sha-256", "host all nobody all scram-sha-256", "host all nopassword all scram-sha-256", "host all refused all reject",
			"host all " + strings.Repeat("u", 63) + " all scram-sha-256",
		},
	})
	admin := dial.Connect(t, pg.DSN("postgres", "postgres"))
	for _, sql := range []string{
		"CREATE ROLE clear LOGIN PASSWORD 'secret'", "CREATE ROLE scram LOGIN PASSWORD 'secret'", "CREATE ROLE nopassword LOGIN", "CREATE ROLE refused LOGIN",
		"DO $$ BEGIN EXECUTE format('CREATE ROLE long LOGIN PASSWORD %L', repeat('x', 65530)); END $$",
		"SET password_encryption = 'md5'", "CREATE ROLE md5 LOGIN PASSWORD 'secret'", "CREATE ROLE hashed LOGIN PASSWORD 'secret'",
	} {
		dial.Exec(t, admin, sql)
	}
	shown := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	return newRigOn(t, pg, func(server *proxy.Server, store *fencing.Store) {
		server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return shown }}
		server.Upstream[0].Ways[0].TLS = &tls.Config{RootCAs: ca.Pool, ServerName: "db.example"}
		server.Secrets = roles{store}
		server.RestAfter = time.Millisecond
	}, databases...)
}

// roles asks PostgreSQL for what it stores of passwords.
type roles struct{ store *fencing.Store }

func (r roles) Credential(ctx context.Context, user string) (proxy.Credential, error) {
	text, err := r.store.RoleSecret(ctx, user)
	secret, none := scram.ParseSecret(text)
	if none != nil {
		return proxy.Credential{}, err
	}
	return proxy.Credential{Secret: &secret}, err
}
