package main

import (
	"crypto/tls"
	"log/slog"
	"net"

	"github.com/spf13/pflag"
)

// leastToken is how many characters an admin token has at least: whoever has many
// addresses can try many.
const leastToken = 16

// adminFlags say where the admin port is, and who may see what is there.
type adminFlags struct {
	listen        address
	token         passwordFlags
	cert, key, ca string
}

func newAdminFlags() adminFlags { return adminFlags{listen: defaultAdminListen} }

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.listen, "admin-listen", "where the dashboard, /metrics, /healthz and /readyz are; elsewhere than on loopback it needs a token or certificates of clients")
	addAdminToken(flags, &f.token)
	addAdminCert(flags, &f.cert)
	flags.StringVar(&f.key, "admin-tls-key", "", "the certificate's private key, a PEM `FILE`")
	flags.StringVar(&f.ca, "admin-tls-ca", "", "a PEM `FILE` of authorities: who shows a certificate of theirs needs no token")
}

// addAdminToken and addAdminCert are for the commands, too, that ask an admin port.
func addAdminToken(flags *pflag.FlagSet, token *passwordFlags) {
	token.name = "admin-token"
	token.add(flags, "what requests to the admin port must show")
}

func addAdminCert(flags *pflag.FlagSet, cert *string) {
	flags.StringVar(cert, "admin-tls-cert", "", "the admin port's certificate, a PEM `FILE`; without one it doesn't encrypt")
}

func (f *adminFlags) files() tlsFiles {
	return tlsFiles{flags: "--admin-tls", cert: f.cert, key: f.key, ca: f.ca}
}

// guarded reports whether more is asked for than being on this machine.
func (f *adminFlags) guarded() bool { return f.token.set() || f.ca != "" }

// check looks at the settings and the files that they name.
func (f *adminFlags) check(origin func(string) string) error {
	var found faults
	found.add(f.token.check())
	for _, way := range f.token.ways() {
		if token, err := way.read(); err == nil { // else it was told
			found.add(checkToken(way, token))
		}
	}
	if !f.guarded() && f.listen.exposed() {
		found.add(unguarded(origin("admin-listen"), f.listen.String()))
	}
	_, err := f.open(slog.New(slog.DiscardHandler))
	found.add(err)
	return found.err()
}

// unguarded words why the admin port isn't opened at an address.
func unguarded(what, at string) error {
	return usagef("%s: other machines reach %s, and it shows keys and names of sessions: give it a token (--admin-token-file FILE, "+
		"or FENCEPROXY_ADMIN_TOKEN), or ask for certificates of clients (--admin-tls-cert, --admin-tls-key, --admin-tls-ca); or listen on 127.0.0.1", what, at)
}

// checkPort is check for what is listened on: what a name of --admin-listen stands
// for, or a socket that a service manager has opened somewhere.
func (f *adminFlags) checkPort(ln net.Listener) error {
	if isLoopback(ln.Addr().String()) || f.guarded() {
		return nil
	}
	return unguarded("the admin port", ln.Addr().String())
}

// readToken returns the token as it is now: a file of it is read each time.
func (f *adminFlags) readToken() (string, error) {
	token, err := f.token.read()
	if err == nil {
		err = checkToken(f.token, token)
	}
	if err != nil {
		return "", err
	}
	return token.reveal(), nil
}

// checkToken refuses a token that somebody may find.
func checkToken(given passwordFlags, token secret) error {
	if len(token.reveal()) >= leastToken {
		return nil
	}
	from := given.given()
	if given.file != "" {
		from += " " + given.file
	}
	return usagef("%s: a token has %d characters at least, so that nobody finds it by trying; openssl rand -hex 24 makes one", from, leastToken)
}

// open returns how the port encrypts, after a first look at the files; nil where it
// doesn't. Not everybody needs a certificate: probes don't, and who has the token.
func (f *adminFlags) open(logger *slog.Logger) (*tls.Config, error) {
	if f.cert+f.key+f.ca == "" {
		return nil, nil
	}
	var found faults
	if f.cert == "" || f.key == "" {
		found.add(usagef("--admin-tls-cert, --admin-tls-key and --admin-tls-ca: the first two go together, and the third needs them"))
	}
	c := &certificates{files: f.files(), demand: tls.VerifyClientCertIfGiven, logger: logger}
	found.add(c.load())
	if len(found) > 0 {
		return nil, found
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil }}, nil
}
