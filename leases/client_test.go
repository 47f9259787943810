package leases_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/leases"
)

func TestNewClient_Refuses(t *testing.T) {
	for _, endpoints := range [][]string{
		nil,
		{""},
		{"127.0.0.1:2379"},
		{"localhost"},
		{"http://127.0.0.1"},
		{"ftp://127.0.0.1:2379"},
		{"http://:2379"},
		{"http://127.0.0.1:2379", "127.0.0.1:2380"},
		{"http://127.0.0.1:2379,http://127.0.0.1:2380"},
	} {
		client, err := leases.NewClient(endpoints, nil)
		if !errors.Is(err, leases.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", endpoints, err)
		}
		if err == nil {
			client.Close()
		}
	}
}

func TestNewClient_TLS(t *testing.T) {
	etcd := startEtcd(t)
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	terminator := startRelayOn(t, tlsListener(t, borrowed.TLS.Certificates), etcd.Endpoint())
	borrowed.Close()
	endpoint := strings.Replace(terminator.Endpoint(), "http://", "https://", 1)

	client, err := leases.NewClient([]string{endpoint}, &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	if err := leases.NewAuthority(client).Ping(testContext(t)); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func tlsListener(t *testing.T, certificates []tls.Certificate) net.Listener {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	return listener
}
