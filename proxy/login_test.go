package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// logins is a PostgreSQL with TLS that asks each role for its password by the
// method that the role is named after, and proxies before it.
type logins struct {
	*stack
	ca    *certs.Authority
	store *fencing.Store
}

const loginPassword = "päss wörd"

func newLogins(t *testing.T) *logins {
	t.Helper()
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("db.example"))
	root, _ := ca.Files(ca.Certificate())
	pg := postgres.New(t, postgres.Options{
		Config: []string{"ssl = on", "ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'", "ssl_ca_file = '" + root + "'"},
		HBA: []string{
			"host all clear all password", "host all md5 all md5", "host all scram all scram-sha-256", "hostssl all certified all cert",
			"host all certified all reject", "hostssl all twofold all scram-sha-256 clientcert=verify-full", "host all twofold all reject",
		},
	})
	l := &logins{stack: newStackOn(t, pg), ca: ca}
	for _, role := range []string{"clear", "scram", "twofold"} {
		l.exec("CREATE ROLE " + role + " LOGIN PASSWORD '" + loginPassword + "'")
	}
	l.exec("CREATE ROLE trust LOGIN; CREATE ROLE certified LOGIN; SET password_encryption = 'md5'; CREATE ROLE md5 LOGIN PASSWORD '" + loginPassword + "'; RESET password_encryption")
	store, err := fencing.NewStore(pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	l.store = store
	return l
}

// Credential asks PostgreSQL.
func (l *logins) Credential(ctx context.Context, user string) (proxy.Credential, error) {
	text, err := l.store.RoleSecret(ctx, user)
	secret, none := scram.ParseSecret(text)
	if none != nil {
		return proxy.Credential{}, err
	}
	return proxy.Credential{Secret: &secret}, err
}

// proxy starts one whose legs are encrypted as is said; own is the proxy's
// certificate towards PostgreSQL, if it has one.
func (l *logins) proxy(clientTLS proxy.TLSMode, upstreamTLS, secrets bool, own ...tls.Certificate) (addr string) {
	l.t.Helper()
	shown := &tls.Config{Certificates: []tls.Certificate{l.ca.Leaf("proxy.example")}}
	return l.addProxy(l.pg.Addr(), func(server *proxy.Server) {
		server.TLS = proxy.ClientTLS{Mode: clientTLS, Config: func() *tls.Config { return shown }}
		if secrets {
			server.Secrets = l
		}
		if upstreamTLS {
			server.Upstream[0].Ways[0].TLS = &tls.Config{RootCAs: l.ca.Pool, ServerName: "db.example", Certificates: own}
		}
	})
}

// psql logs in and returns what it printed: the role, or why not. It runs with
// the libpq that came with the server, if one did.
func (l *logins) psql(addr, user, password, options string) string {
	l.t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.CommandContext(l.t.Context(), "psql", "-XAt", "-c", "SELECT current_user",
		fmt.Sprintf("host=%s port=%s user=%s dbname=postgres %s", host, port, user, options))
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password, "LC_ALL=C")
	if lib, ok := l.libpq(); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+lib)
	}
	out, _ := cmd.CombinedOutput()
	return strings.TrimSpace(string(out))
}

// libpq returns the folder of the server's own libpq. That of a system's
// package is where psql finds it.
func (l *logins) libpq() (dir string, ok bool) {
	dir = filepath.Join(filepath.Dir(l.pg.Program("postgres")), "..", "lib")
	_, err := os.Stat(filepath.Join(dir, "libpq.so.5"))
	return dir, err == nil
}

// Which passwords get through which legs, by libpq's own word.
func TestServer_LoginMethods(t *testing.T) {
	l := newLogins(t)
	const wrong = "password authentication failed"
	for _, c := range []struct {
		upstreamTLS, secrets bool
		sslmode, binding     string
		scram                string // what comes of it in place of a login
	}{
		{false, false, "disable", "prefer", ""},
		{true, false, "disable", "prefer", ""},
		{false, false, "require", "prefer", ""},
		{false, false, "require", "require", "channel binding is required"},
		{true, false, "require", "disable", ""},
		{true, false, "require", "prefer", "SCRAM channel binding negotiation error"},
		{false, true, "disable", "prefer", ""},
		{true, true, "disable", "require", "channel binding required"},
		{false, true, "require", "prefer", ""},
		{false, true, "require", "require", ""},
		{true, true, "require", "disable", ""},
		{true, true, "require", "require", ""},
	} {
		t.Run(fmt.Sprintf("upstream TLS %v, secrets %v, sslmode=%s channel_binding=%s", c.upstreamTLS, c.secrets, c.sslmode, c.binding), func(t *testing.T) {
			addr := l.proxy(proxy.TLSAllow, c.upstreamTLS, c.secrets)
			for _, role := range []string{"trust", "clear", "md5", "scram"} {
				want, wantWrong := role, wrong
				switch {
				case role == "scram" && c.scram != "":
					want, wantWrong = c.scram, c.scram
				case role != "scram" && c.binding == "require":
					want = "channel binding" // no other method has it
				}
				options := "sslmode=" + c.sslmode + " channel_binding=" + c.binding
				if got := l.psql(addr, role, loginPassword, options); !strings.Contains(got, want) {
					t.Errorf("%s: got %s, want %s", role, got, want)
				}
				if role == "trust" || c.binding != "prefer" && role != "scram" {
					continue // the password doesn't matter, or was not sent
				}
				if got := l.psql(addr, role, "wrong", options); !strings.Contains(got, wantWrong) {
					t.Errorf("%s, wrong password: got %s, want %s", role, got, wantWrong)
				}
			}
		})
	}
}

// The ways that libpq begins a session, and its verification of the proxy.
func TestServer_LoginOptions(t *testing.T) {
	l := newLogins(t)
	root, _ := l.ca.Files(l.ca.Certificate())
	stranger, _ := l.ca.Files(certs.New(t).Certificate())
	addrs := map[proxy.TLSMode]string{}
	for _, mode := range []proxy.TLSMode{proxy.TLSDisable, proxy.TLSAllow, proxy.TLSRequire} {
		addrs[mode] = l.proxy(mode, true, true)
	}
	const in, plain, refused = "scram", "fenceproxy takes only encrypted connections", "does not support SSL"
	all := []struct {
		options                  string
		disabled, allow, require string
	}{
		{"sslmode=disable", in, in, plain},
		{"sslmode=allow", in, in, in},
		{"sslmode=prefer", in, in, in},
		{"sslmode=require", refused, in, in},
		{"sslmode=require channel_binding=require", refused, in, in},
		{"sslmode=require gssencmode=disable", refused, in, in},
		{"sslmode=prefer gssencmode=require", "GSS", "GSS", "GSS"},
		{"sslmode=verify-ca sslrootcert=" + root, refused, in, in},
		{"sslmode=verify-full sslrootcert=" + root, refused, in, in},
		{"sslmode=verify-full host=proxy.example hostaddr=127.0.0.1 sslrootcert=" + root, refused, in, in},
		{"sslmode=verify-full host=other.example hostaddr=127.0.0.1 sslrootcert=" + root, refused, "does not match host name", "does not match host name"},
		{"sslmode=verify-ca host=other.example hostaddr=127.0.0.1 sslrootcert=" + root, refused, in, in},
		{"sslmode=verify-ca sslrootcert=" + stranger, refused, "certificate verify failed", "certificate verify failed"},
		{"sslmode=require ssl_max_protocol_version=TLSv1.2", refused, in, in},
		{"sslmode=require ssl_min_protocol_version=TLSv1.3", refused, in, in},
		{"sslmode=require ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.1", refused, "SSL error", "SSL error"},
	}
	// libpq knows it from PostgreSQL 17 on.
	if strings.Contains(l.psql(addrs[proxy.TLSAllow], "scram", loginPassword, "sslnegotiation=postgres"), in) {
		direct := all[3]
		direct.options = "sslmode=require sslnegotiation=direct channel_binding=require"
		direct.disabled = "error"
		all = append(all, direct)
		if strings.Contains(l.psql(addrs[proxy.TLSAllow], "scram", loginPassword, "max_protocol_version=3.2"), in) {
			direct.options = "sslmode=require max_protocol_version=latest min_protocol_version=3.0"
			direct.disabled = refused
			all = append(all, direct)
		}
	}
	for _, c := range all {
		for mode, want := range map[proxy.TLSMode]string{proxy.TLSDisable: c.disabled, proxy.TLSAllow: c.allow, proxy.TLSRequire: c.require} {
			if got := l.psql(addrs[mode], "scram", loginPassword, c.options); !strings.Contains(got, want) || want == in && got != in {
				t.Errorf("%s, %s: got %s, want %s", mode, c.options, got, want)
			}
		}
	}
}

// Who may log in is PostgreSQL's to say, in its own words, whoever verified the
// password.
func TestServer_LoginAsPostgreSQL(t *testing.T) {
	l := newLogins(t)
	addr := l.proxy(proxy.TLSAllow, true, true)
	login := func(addr, role, password, sslmode string) string {
		t.Helper()
		config, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/postgres?sslmode=%s", role, addr, sslmode))
		if err != nil {
			t.Fatal(err)
		}
		config.Password, config.Fallbacks = password, nil
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err == nil {
			return errString(conn.Close(context.Background()))
		}
		e := pgError(err)
		if e == nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %s %s (%s) %s", e.Severity, e.Code, e.Message, e.Detail, e.Hint)
	}
	for _, c := range []struct{ change, password, want string }{
		{"VALID UNTIL 'infinity'", loginPassword, ""},
		{"VALID UNTIL 'infinity'", "wrong", "28P01"},
		{"PASSWORD 'changed'", loginPassword, "28P01"},
		{"PASSWORD 'changed'", "changed", ""},
		{"PASSWORD '" + loginPassword + "' VALID UNTIL 'yesterday'", loginPassword, "28P01"},
		{"PASSWORD '" + loginPassword + "' VALID UNTIL 'yesterday'", "wrong", "28P01"},
		{"VALID UNTIL 'infinity' CONNECTION LIMIT 0", loginPassword, "53300"},
		{"CONNECTION LIMIT 0", "wrong", "28P01"},
		{"CONNECTION LIMIT -1 NOLOGIN", loginPassword, "28000"},
		{"LOGIN PASSWORD NULL", loginPassword, "28P01"},
		{"PASSWORD '" + loginPassword + "'", loginPassword, ""},
	} {
		for _, role := range []string{"scram", "clear"} {
			l.exec("ALTER ROLE " + role + " " + c.change)
			for _, sslmode := range []string{"disable", "require"} {
				want, got := login(l.pg.Addr(), role, c.password, sslmode), login(addr, role, c.password, sslmode)
				if got != want || !strings.Contains(want, c.want) || c.want == "" && want != "" {
					t.Errorf("%s %s, sslmode=%s: got %q, want %q as PostgreSQL says it, %s", role, c.change, sslmode, got, want, c.want)
				}
			}
		}
	}
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Towards PostgreSQL the proxy shows its own certificate, and believes only one
// that is valid now, for the right host, and from the right authority.
func TestServer_UpstreamCertificates(t *testing.T) {
	l := newLogins(t)
	t.Run("the proxy's own", func(t *testing.T) {
		for _, c := range []struct {
			role string
			own  []tls.Certificate
			want string
		}{
			{"certified", []tls.Certificate{l.ca.Leaf("certified")}, "certified"},
			{"certified", []tls.Certificate{l.ca.Leaf("another")}, "certificate authentication failed"},
			{"certified", nil, "FATAL"},
			{"twofold", []tls.Certificate{l.ca.Leaf("twofold")}, "twofold"},
			{"twofold", nil, "FATAL"},
		} {
			addr := l.proxy(proxy.TLSAllow, true, true, c.own...)
			for _, sslmode := range []string{"disable", "require"} {
				if got := l.psql(addr, c.role, loginPassword, "sslmode="+sslmode); !strings.Contains(got, c.want) {
					t.Errorf("%s with %d certificates, sslmode=%s: got %s, want %s", c.role, len(c.own), sslmode, got, c.want)
				}
			}
		}
	})
	t.Run("PostgreSQL's", func(t *testing.T) {
		for _, c := range []struct {
			name  string
			shown tls.Certificate
			want  string
		}{
			{"good", l.ca.Leaf("db.example"), "trust"},
			{"expired", l.ca.Expired("db.example"), "certificate has expired"},
			{"another host", l.ca.Leaf("other.example"), "not db.example"},
			{"another authority", certs.New(t).Leaf("db.example"), "unknown authority"},
		} {
			cert, key := l.ca.Files(c.shown)
			pg := postgres.New(t, postgres.Options{Config: []string{"ssl = on", "ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'"}})
			other := &logins{stack: newStackOn(t, pg), ca: l.ca}
			other.exec("CREATE ROLE trust LOGIN")
			got := other.psql(other.proxy(proxy.TLSDisable, true, false), "trust", "", "sslmode=disable")
			if !strings.Contains(got, c.want) || c.want != "trust" && !strings.Contains(got, "fenceproxy cannot reach PostgreSQL") {
				t.Errorf("%s: got %s, want %s", c.name, got, c.want)
			}
		}
	})
}
