package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/fenceproxy/fenceproxy/leases"
)

// etcdFiles are what the connections to etcd are encrypted by: "" is the system's
// authorities, and no certificate.
type etcdFiles struct{ ca, cert, key string }

// config returns nil where the defaults will do. The certificate is read for each
// handshake, so that it can be renewed while the proxy runs.
func (f *etcdFiles) config() (*tls.Config, error) {
	if f.ca+f.cert+f.key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, usagef("--etcd-ca: %v", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--etcd-ca %s: %v", f.ca, errNoCertificate)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--etcd-cert and --etcd-key need each other")
	}
	if f.cert == "" {
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usagef("--etcd-cert, --etcd-key: %v", err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return config, nil
}

// login is as whom etcd is asked.
func (e *etcdFlags) login() (leases.Login, error) {
	if e.user == "" {
		if e.password.set() {
			return leases.Login{}, usagef("%s needs --etcd-user", e.password.given())
		}
		return leases.Login{}, nil
	}
	if err := e.password.check(); err != nil {
		return leases.Login{}, err
	}
	text, err := e.password.read()
	if err == nil && text.reveal() == "" {
		err = usagef("--etcd-user needs %s or --etcd-password-file", variable("etcd-password"))
	}
	return leases.Login{User: e.user, Password: text.reveal()}, err
}
