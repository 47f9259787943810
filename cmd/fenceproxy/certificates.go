package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// clientTLSFlags say how sessions with clients are encrypted.
type clientTLSFlags struct {
	mode          choice
	cert, key, ca string
}

func newClientTLSFlags() clientTLSFlags {
	return clientTLSFlags{mode: choice{proxy.TLSDisable.String(), []string{
		proxy.TLSDisable.String(), proxy.TLSAllow.String(), proxy.TLSRequire.String(),
	}}}
}

func (f *clientTLSFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.mode, "client-tls", "whether clients may or must encrypt")
	flags.StringVar(&f.cert, "client-tls-cert", "", "the proxy's certificate, a PEM `FILE`; read again when it changes")
	flags.StringVar(&f.key, "client-tls-key", "", "the certificate's private key, a PEM `FILE`")
	flags.StringVar(&f.ca, "client-tls-ca", "", "a PEM `FILE` of authorities: clients must show a certificate of theirs")
}

// files are what is read of the disk.
func (f *clientTLSFlags) files() tlsFiles {
	return tlsFiles{flags: "--client-tls", cert: f.cert, key: f.key, ca: f.ca}
}

// open returns how the proxy is to encrypt, after a first look at the files.
func (f *clientTLSFlags) open(logger *slog.Logger) (proxy.ClientTLS, error) {
	mode := map[string]proxy.TLSMode{
		proxy.TLSAllow.String(): proxy.TLSAllow, proxy.TLSRequire.String(): proxy.TLSRequire,
	}[f.mode.value]
	var found faults
	switch {
	case mode == proxy.TLSDisable:
		found.add(f.unused())
	case mode != proxy.TLSRequire && f.ca != "":
		found.add(errUnproven)
	case f.cert == "" || f.key == "":
		found.add(usagef("--client-tls %s needs --client-tls-cert and --client-tls-key", f.mode.value))
	}
	c := &certificates{files: f.files(), demand: tls.RequireAndVerifyClientCert, logger: logger}
	found.add(c.load())
	if mode == proxy.TLSDisable || len(found) > 0 {
		return proxy.ClientTLS{}, found.err()
	}
	return proxy.ClientTLS{Mode: mode, Config: c.current}, nil
}

// errUnproven: a certificate is asked for, and who doesn't encrypt would get in without.
var errUnproven = usagef("--client-tls-ca needs --client-tls require: a client that doesn't encrypt shows no certificate")

// unused names the files that are of no use.
func (f *clientTLSFlags) unused() error {
	var found faults
	for _, s := range [...]struct{ flag, file string }{{"cert", f.cert}, {"key", f.key}} {
		if s.file != "" {
			found.add(usagef("--client-tls-%s needs --client-tls allow or require", s.flag))
		}
	}
	if f.ca != "" {
		found.add(errUnproven)
	}
	return found.err()
}

// tlsFiles are PEM files to encrypt by; "" is none.
type tlsFiles struct {
	flags         string // what the flags that name them begin with
	cert, key, ca string
}

// pair returns the certificate with its key. The error tells of each file that can't
// be used.
func (f *tlsFiles) pair() (pair tls.Certificate, err error) {
	var found faults
	cert, key := f.read("cert", f.cert, &found), f.read("key", f.key, &found)
	if f.cert != "" && f.key != "" && len(found) == 0 {
		if pair, err = tls.X509KeyPair(cert, key); err != nil {
			found.add(fmt.Errorf("%[1]s-cert, %[1]s-key: %[2]w", f.flags, err))
		}
	}
	return pair, found.err()
}

// authorities returns those of the file; nil where none is named.
func (f *tlsFiles) authorities() (*x509.CertPool, error) {
	var found faults
	pem := f.read("ca", f.ca, &found)
	if f.ca == "" || len(found) > 0 {
		return nil, found.err()
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s-ca %s: %w", f.flags, f.ca, errNoCertificate)
	}
	return pool, nil
}

// read returns what is in a file; nothing where none is named.
func (f *tlsFiles) read(what, path string, found *faults) []byte {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		found.add(fmt.Errorf("%s-%s: %w", f.flags, what, err))
	}
	return text
}

// certificates keeps what the files say, and reads them again when one of
// them has changed. Files that can't be used leave what was there before.
type certificates struct {
	files  tlsFiles
	demand tls.ClientAuthType // of clients, where there are authorities for theirs
	logger *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	seen   [3]time.Time // when the files were changed last
}

// current is asked for each handshake.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() != c.seen {
		if err := c.loadLocked(); err != nil {
			c.logger.Error("certificate not reloaded", "error", oneLine(err))
			c.seen = c.changed() // said once for each change
		} else {
			c.logger.Info("certificate reloaded", "file", c.files.cert)
		}
	}
	return c.config
}

func (c *certificates) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked()
}

func (c *certificates) loadLocked() error {
	seen := c.changed()
	var found faults
	pair, err := c.files.pair()
	found.add(err)
	authorities, err := c.files.authorities()
	found.add(err)
	if len(found) > 0 {
		return found
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if authorities != nil {
		config.ClientCAs, config.ClientAuth = authorities, c.demand
	}
	c.config, c.seen = config, seen
	return nil
}

var errNoCertificate = errors.New("no certificate in the file")

// changed returns when each file was changed; zero for one that isn't there.
func (c *certificates) changed() (at [3]time.Time) {
	for i, path := range []string{c.files.cert, c.files.key, c.files.ca} {
		if info, err := os.Stat(path); err == nil {
			at[i] = info.ModTime()
		}
	}
	return at
}
