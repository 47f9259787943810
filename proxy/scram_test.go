package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/testharness/certs"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// Passwords work over every combination of encrypted legs, with binding to
// the channel where the client wants it, and a wrong one fails in the same
// way as an unknown user.
func TestServer_SCRAM(t *testing.T) {
	ca := certs.New(t)
	cert, key := ca.Files(ca.Leaf("db.example"))
	pg := postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM, Password: "admin", Config: []string{
		"ssl = on", "ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'",
	}})
	s := newStackOn(t, pg)
	s.exec("CREATE ROLE app LOGIN PASSWORD 'first ü'; CREATE ROLE nopass LOGIN")
	store, err := fencing.NewStore(pg.DSN("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	own := &tls.Config{Certificates: []tls.Certificate{ca.Leaf("proxy")}}
	addr := map[bool]string{}
	for _, encrypted := range []bool{false, true} {
		addr[encrypted] = s.addProxy(pg.Addr(), func(server *proxy.Server) {
			server.TLS = proxy.ClientTLS{Mode: proxy.TLSAllow, Config: func() *tls.Config { return own }}
			server.Secrets = secretsOf(store)
			if encrypted {
				server.Upstream[0].Ways[0].TLS = &tls.Config{RootCAs: ca.Pool, ServerName: "db.example"}
			}
		})
	}
	login := func(upstream bool, sslmode, binding, user, password string) string {
		t.Helper()
		host, port, _ := strings.Cut(addr[upstream], ":")
		cmd := exec.CommandContext(t.Context(), "psql", "-XAt", "-c", "SELECT current_user",
			fmt.Sprintf("host=%s port=%s user=%s dbname=postgres sslmode=%s channel_binding=%s", host, port, user, sslmode, binding))
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
		out, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	for _, upstream := range []bool{false, true} {
		for _, c := range []struct{ sslmode, binding string }{
			{"disable", "disable"}, {"disable", "prefer"}, {"require", "disable"}, {"require", "prefer"}, {"require", "require"},
		} {
			t.Run(fmt.Sprintf("upstream TLS %v/%s/%s", upstream, c.sslmode, c.binding), func(t *testing.T) {
				s.exec("ALTER ROLE app PASSWORD 'first ü'")
				if got := login(upstream, c.sslmode, c.binding, "app", "first ü"); got != "app" {
					t.Errorf("got %s", got)
				}
				s.exec("ALTER ROLE app PASSWORD 'second'")
				if got := login(upstream, c.sslmode, c.binding, "app", "second"); got != "app" {
					t.Errorf("after the password was changed: %s", got)
				}
				for _, user := range []string{"app", "nobody", "nopass"} {
					got := login(upstream, c.sslmode, c.binding, user, "wrong")
					if want := fmt.Sprintf(`FATAL:  password authentication failed for user "%s"`, user); !strings.HasSuffix(got, want) {
						t.Errorf("%s: got %s", user, got)
					}
				}
			})
		}
	}
	s.exec("ALTER ROLE app PASSWORD 'first ü' VALID UNTIL 'yesterday'")
	if got := login(true, "require", "require", "app", "first ü"); !strings.Contains(got, "password authentication failed") {
		t.Errorf("expired password: %s", got)
	}
	s.exec("ALTER ROLE app VALID UNTIL 'infinity' CONNECTION LIMIT 0")
	if got := login(true, "require", "require", "app", "first ü"); !strings.Contains(got, "too many connections for role") {
		t.Errorf("connection limit: %s", got)
	}
}

type secretsFunc func(ctx context.Context, user string) (proxy.Credential, error)

func (f secretsFunc) Credential(ctx context.Context, user string) (proxy.Credential, error) {
	return f(ctx, user)
}

// secretsOf are those that PostgreSQL has.
func secretsOf(store *fencing.Store) proxy.Secrets {
	return secretsFunc(func(ctx context.Context, user string) (proxy.Credential, error) {
		text, err := store.RoleSecret(ctx, user)
		secret, none := scram.ParseSecret(text)
		if none != nil {
			return proxy.Credential{}, err
		}
		return proxy.Credential{Secret: &secret}, err
	})
}
