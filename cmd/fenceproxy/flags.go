package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/leases/embedded"
)

// Flags that several commands have, with one meaning and one default each.

const (
	defaultListen      = "127.0.0.1:6433"
	defaultAdminListen = "127.0.0.1:6434"
)

// etcdFlags say where the locks are.
type etcdFlags struct {
	endpoints endpoints
	prefix    string
	files     etcdFiles
	user      string
	password  passwordFlags
	embedded  embeddedFlags // of a proxy beside this command; none for serve
}

// embeddedFlags are serve's own, for commands that are given its settings and ask the
// etcd in its process.
type embeddedFlags struct {
	dir    string
	listen loopback
}

func (e *etcdFlags) add(flags *pflag.FlagSet) {
	flags.Var(&e.endpoints, "etcd", "client `URL`s of etcd, joined with commas")
	flags.StringVar(&e.prefix, "lock-prefix", e.prefix, "the `PREFIX` of the etcd keys of locks, which ends in /")
	flags.StringVar(&e.files.ca, "etcd-ca", "", "a PEM `FILE` of authorities for etcd's certificates, instead of the system's")
	flags.StringVar(&e.files.cert, "etcd-cert", "", "a certificate to show to etcd, a PEM `FILE`; read for each connection")
	flags.StringVar(&e.files.key, "etcd-key", "", "the certificate's private key, a PEM `FILE`")
	flags.StringVar(&e.user, "etcd-user", "", "the `USER` to be in etcd, where it asks for one")
	e.password.name = "etcd-password"
	e.password.add(flags, "the user's password")
}

// addBeside is add for a command other than serve.
func (e *etcdFlags) addBeside(flags *pflag.FlagSet) {
	e.add(flags)
	e.embedded.listen = loopback{embedded.DefaultAddr}
	flags.StringVar(&e.embedded.dir, "embed-etcd", "", "as serve has it, a `DIR`: without --etcd, the etcd in its process is asked")
	flags.Var(&e.embedded.listen, "etcd-listen", "as serve has it: where that etcd listens")
}

// named are the URLs of the etcd to ask, if it is known.
func (e *etcdFlags) named() endpoints {
	if len(e.endpoints) == 0 && e.embedded.dir != "" {
		return endpoints{"http://" + e.embedded.listen.String()}
	}
	return e.endpoints
}

// check refuses a prefix under which locks would not be children of a folder, and
// files and logins that are of no use.
func (e *etcdFlags) check() error {
	var found faults
	if n := len(e.prefix); n == 0 || e.prefix[n-1] != '/' {
		found.add(usagef("--lock-prefix: %q must end in /", e.prefix))
	}
	_, err := e.files.config()
	found.add(err)
	_, err = e.login()
	found.add(err)
	return found.err()
}

// open returns a client of the cluster that was named, for commands that can't
// do without one. It connects in the background; the caller closes it.
func (e *etcdFlags) open() (*clientv3.Client, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if len(e.named()) == 0 {
		return nil, usagef("--etcd is missing: the URLs of etcd, such as http://127.0.0.1:2379")
	}
	return e.client()
}

// client returns a client of the cluster that was named.
func (e *etcdFlags) client() (*clientv3.Client, error) {
	config, err := e.files.config()
	if err != nil {
		return nil, err
	}
	login, err := e.login()
	if err != nil {
		return nil, err
	}
	client, err := leases.NewClientFor(e.named(), config, login)
	switch {
	case errors.Is(err, leases.ErrInvalid):
		return nil, usagef("--etcd: %v", err)
	case err != nil:
		return nil, fmt.Errorf("--etcd: %w", err)
	}
	return client, nil
}

func addConfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "config", "", "YAML `FILE` of settings: flag names with _ for -")
}

// startTimeout bounds each look at something that a command needs.
const startTimeout = 5 * time.Second
