package main

import (
	"crypto/tls"
	"errors"

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
	files := tlsFiles{flags: "--etcd", cert: f.cert, key: f.key, ca: f.ca}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var found faults
	var err error
	config.RootCAs, err = files.authorities()
	found.add(err)
	if (f.cert == "") != (f.key == "") {
		found.add(usagef("--etcd-cert and --etcd-key need each other"))
	}
	_, err = files.pair()
	found.add(err)
	if len(found) > 0 {
		return nil, asUsage(found)
	}
	if f.cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := files.pair()
			if err != nil {
				return nil, errors.New(oneLine(err)) // a part of other lines
			}
			return &pair, nil
		}
	}
	return config, nil
}

// login is as whom etcd is asked.
func (e *etcdFlags) login() (leases.Login, error) {
	var found faults
	if e.user == "" && e.password.set() {
		found.add(usagef("%s needs --etcd-user", e.password.given()))
	}
	found.add(e.password.check())
	text, err := e.password.read()
	if err == nil && e.user != "" && text.reveal() == "" {
		found.add(usagef("--etcd-user needs %s or --etcd-password-file", variable("etcd-password")))
	}
	return leases.Login{User: e.user, Password: text.reveal()}, found.err()
}
