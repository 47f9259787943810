package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// TB is the part of testing.TB that certificates need; benchmarks that are
// programs of their own need them too.
type TB interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
}

// An Authority signs certificates for a test.
type Authority struct {
	t    TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// Pool trusts the authority.
	Pool *x509.CertPool
}

// New returns an authority of its own.
func New(t TB) *Authority {
	t.Helper()
	a := &Authority{t: t, Pool: x509.NewCertPool()}
	a.key = newKey(t)
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, &a.key.PublicKey)
	a.Pool.AddCert(a.cert)
	return a
}

func newKey(t TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(c, parent *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotBefore.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// Certificate returns the authority's own.
func (a *Authority) Certificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

// Leaf makes a certificate for name, a host or a user, and for 127.0.0.1.
func (a *Authority) Leaf(name string) tls.Certificate {
	a.t.Helper()
	return a.leaf(name, &x509.Certificate{})
}

// Expired is Leaf of a certificate that was valid up to an hour ago.
func (a *Authority) Expired(name string) tls.Certificate {
	a.t.Helper()
	return a.leaf(name, &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
}

func (a *Authority) leaf(name string, c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	c.Subject, c.DNSNames, c.IPAddresses = pkix.Name{CommonName: name}, []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return tls.Certificate{Certificate: [][]byte{a.sign(c, a.cert, &key.PublicKey).Raw}, PrivateKey: key}
}

// Files writes a certificate and its key, in PEM, where PostgreSQL's user can
// read them too, and returns their paths. They go with the test.
func (a *Authority) Files(c tls.Certificate) (cert, key string) {
	a.t.Helper()
	dir, err := os.MkdirTemp("", "fenceproxy-tls")
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { os.RemoveAll(dir) })
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		a.t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		owner, err := user.Lookup("postgres")
		if err != nil {
			a.t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		for _, path := range []string{dir, cert, key} {
			if err := os.Chown(path, uid, -1); err != nil {
				a.t.Fatal(err)
			}
		}
	}
	return cert, key
}
