package main

import (
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
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
}

func (e *etcdFlags) add(flags *pflag.FlagSet) {
	flags.Var(&e.endpoints, "etcd", "client `URL`s of etcd, joined with commas")
	flags.StringVar(&e.prefix, "lock-prefix", e.prefix, "what the etcd keys of locks start with")
}

// check refuses a prefix under which locks would not be children of a folder.
func (e *etcdFlags) check() error {
	if n := len(e.prefix); n == 0 || e.prefix[n-1] != '/' {
		return usagef("--lock-prefix: %q must end in /", e.prefix)
	}
	return nil
}

// open returns a client of the cluster that was named, for commands that can't
// do without one. It connects in the background; the caller closes it.
func (e *etcdFlags) open() (*clientv3.Client, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if len(e.endpoints) == 0 {
		return nil, usagef("--etcd is missing: the URLs of etcd, such as http://127.0.0.1:2379")
	}
	client, err := leases.NewClient(e.endpoints, nil)
	if err != nil {
		return nil, usagef("--etcd: %v", err)
	}
	return client, nil
}

func addConfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "config", "", "YAML `file` of settings: flag names with _ for -")
}

// startTimeout bounds each look at something that a command needs.
const startTimeout = 5 * time.Second
