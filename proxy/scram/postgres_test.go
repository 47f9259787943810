package scram_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A database is a PostgreSQL that asks for SCRAM, and a superuser in it.
type database struct {
	t      testing.TB
	server *postgres.Server
	admin  *pgx.Conn
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	server := postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM})
	admin, err := pgx.Connect(t.Context(), server.DSN(postgres.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close(t.Context()) })
	return &database{t, server, admin}
}

func (d *database) exec(format string, args ...any) {
	d.t.Helper()
	if _, err := d.admin.Exec(d.t.Context(), fmt.Sprintf(format, args...)); err != nil {
		d.t.Fatal(err)
	}
}

// setPassword gives role, which it makes if need be, a password.
func (d *database) setPassword(role, password string) {
	d.t.Helper()
	var statement string
	err := d.admin.QueryRow(d.t.Context(), `SELECT format(CASE WHEN to_regrole(quote_ident($1)) IS NULL
		THEN 'CREATE ROLE %I LOGIN PASSWORD %L' ELSE 'ALTER ROLE %I PASSWORD %L' END, $1::text, $2::text)`, role, password).Scan(&statement)
	if err != nil {
		d.t.Fatal(err)
	}
	d.exec("%s", statement)
}

// secret reads role's secret as the proxy would.
func (d *database) secret(role string) scram.Secret {
	d.t.Helper()
	var text string
	if err := d.admin.QueryRow(d.t.Context(), `SELECT rolpassword FROM pg_authid WHERE rolname = $1`, role).Scan(&text); err != nil {
		d.t.Fatal(err)
	}
	secret, err := scram.ParseSecret(text)
	if err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
	if got := secret.Encode(); got != text {
		d.t.Fatalf("got %s, want %s", got, text)
	}
	return secret
}

// useTLS turns TLS on with the certificate. It returns when new connections
// are shown it.
func (d *database) useTLS(cert tls.Certificate) {
	d.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		d.t.Fatal(err)
	}
	dir := d.server.DataDir()
	info, err := os.Stat(dir)
	if err != nil {
		d.t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	for name, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		"server.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			d.t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			d.t.Fatal(err)
		}
	}
	d.exec("ALTER SYSTEM SET ssl = on")
	d.exec("SELECT pg_reload_conf()")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if shown := d.shown(); string(shown) == string(cert.Certificate[0]) {
			return
		}
		if time.Now().After(end) {
			d.t.Fatal("PostgreSQL doesn't show the certificate")
		}
	}
}

// shown returns the certificate that PostgreSQL shows, nil for none.
func (d *database) shown() []byte {
	conn, err := tlsDial(d.server.Addr())
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Raw
}

// certificate makes a self-signed certificate, signed with the algorithm.
func certificate(t testing.TB, algorithm x509.SignatureAlgorithm) tls.Certificate {
	t.Helper()
	var key crypto.Signer
	var err error
	switch algorithm {
	case x509.PureEd25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case x509.ECDSAWithSHA1, x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, SignatureAlgorithm: algorithm,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestClient_PostgreSQL(t *testing.T) {
	d := newDatabase(t)
	d.setPassword("alice", password)
	secret := d.secret("alice")
	_, key, err := scram.Derive(password, secret.Salt, secret.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("key", func(t *testing.T) {
		d.login(t, scram.NewKeyClient(secret, key, nil), nil)
	})
	t.Run("password", func(t *testing.T) {
		client := scram.NewPasswordClient(password, nil)
		d.login(t, client, nil)
		if got, gotKey, ok := client.Keys(); !ok || got != secret || gotKey != key {
			t.Error("the keys that the login found are not the role's")
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		p, _ := dial(t, d.server.Addr(), "alice", false)
		var got *refusal
		want := scram.PasswordFailed("alice")
		if err := p.login(scram.NewPasswordClient("no", nil)); !errors.As(err, &got) || got.Code != want.Code || got.Message != want.Message {
			t.Errorf("got %v, want %v", err, want)
		}
	})
	t.Run("another server key", func(t *testing.T) {
		p, _ := dial(t, d.server.Addr(), "alice", false)
		other := secret
		other.ServerKey[0]++
		client := scram.NewKeyClient(other, key, nil)
		if err := p.login(client); !errors.Is(err, scram.ErrSignature) || client.Verified() {
			t.Errorf("got %v, want %v", err, scram.ErrSignature)
		}
	})
	for _, algorithm := range []x509.SignatureAlgorithm{x509.SHA256WithRSA, x509.SHA512WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384} {
		t.Run("bound "+algorithm.String(), func(t *testing.T) {
			cert := certificate(t, algorithm)
			d.useTLS(cert)
			client := scram.NewKeyClient(secret, key, scram.CertificateBinding(cert.Leaf))
			d.login(t, client, cert.Leaf)
			if !client.Bound() {
				t.Error("the login was not bound")
			}
		})
	}
	t.Run("bound to another certificate", func(t *testing.T) {
		p, _ := dial(t, d.server.Addr(), "alice", true)
		var got *refusal
		err := p.login(scram.NewKeyClient(secret, key, scram.CertificateBinding(certificate(t, x509.SHA256WithRSA).Leaf)))
		if !errors.As(err, &got) || got.Code != "28000" || got.Message != "SCRAM channel binding check failed" {
			t.Errorf("got %v, want the channel binding to fail", err)
		}
	})
	t.Run("TLS without binding", func(t *testing.T) {
		cert := certificate(t, x509.PureEd25519)
		d.useTLS(cert)
		client := scram.NewKeyClient(secret, key, scram.CertificateBinding(cert.Leaf))
		d.login(t, client, cert.Leaf)
		if client.Bound() {
			t.Error("bound by what?")
		}
	})
	t.Run("changed password", func(t *testing.T) {
		d.setPassword("alice", "changed")
		p, _ := dial(t, d.server.Addr(), "alice", false)
		if err := p.login(scram.NewKeyClient(secret, key, nil)); !errors.Is(err, scram.ErrSecretChanged) {
			t.Errorf("got %v, want %v", err, scram.ErrSecretChanged)
		}
	})
	t.Run("dropped role", func(t *testing.T) {
		d.exec("DROP ROLE alice")
		p, _ := dial(t, d.server.Addr(), "alice", false)
		if err := p.login(scram.NewKeyClient(secret, key, nil)); !errors.Is(err, scram.ErrSecretChanged) {
			t.Errorf("got %v, want %v", err, scram.ErrSecretChanged)
		}
	})
}

// login logs alice in over TLS if cert is what is to be shown, and asks who
// she is.
func (d *database) login(t *testing.T, client *scram.Client, cert *x509.Certificate) {
	t.Helper()
	p, shown := dial(t, d.server.Addr(), "alice", cert != nil)
	if cert != nil && !shown.Equal(cert) {
		t.Fatal("PostgreSQL showed another certificate")
	}
	if err := p.login(client); err != nil {
		t.Fatal(err)
	}
	if !client.Verified() {
		t.Error("the server was not verified")
	}
	if got, err := p.query("SELECT current_user"); err != nil || got != "alice" {
		t.Errorf("got %q, %v, want alice", got, err)
	}
}

// TestDerive_PostgreSQL has PostgreSQL make secrets of passwords.
func TestDerive_PostgreSQL(t *testing.T) {
	d := newDatabase(t)
	for _, password := range []string{
		"pencil", " ", "tab\tand\x7f", "it's", `back\slash`,
		"pässwörd", "pa\u0308sswo\u0308rd", "ﬁle Ⅳ ①", "ｆｕｌｌ", "Å\u00adx", "\u00ad", "a\u00a0b\u3000c\u200bd", "zero\u200cwidth\u200d",
		"\u0340", "x\u0221", "x\u2ff0", "x\ue000", "x\ufeff", "x\ufffd", "x\U000e0001", "😀", "漢字", "한국어", "각",
		"שלום", "שלום1", "1שלום", "שלוםx", "xשלום", "א1ב", "אxב", "ا\u0628", "\u0627\u0031\u0628", "\u0627\u0031",
		"\u0149", "\u01c4", "½", "x\u0345\u0313", "\U0001d400", "\U0001d455", "\u2126", "\u212b",
	} {
		t.Run(fmt.Sprintf("%+q", password), func(t *testing.T) {
			d.setPassword("bob", password)
			want := d.secret("bob")
			got, _, err := scram.Derive(password, want.Salt, want.Iterations)
			if err != nil || got != want {
				t.Errorf("%v: the secret is not PostgreSQL's", err)
			}
		})
	}
}
