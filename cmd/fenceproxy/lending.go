package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// lendingFlags say which locks sessions may take by fence.acquire.
type lendingFlags struct {
	allow           choice
	maxTTL          lifetime
	maxWait         wait
	maxLocksSession count
}

const (
	lendingAllow = "allow"
	lendingDeny  = "deny"
)

func newLendingFlags() lendingFlags {
	lending := proxy.DefaultLending()
	return lendingFlags{
		allow:           choice{lendingDeny, []string{lendingDeny, lendingAllow}},
		maxTTL:          lifetime(lending.MaxTTL),
		maxWait:         wait(lending.MaxWait),
		maxLocksSession: count(lending.MaxLocks),
	}
}

func (f *lendingFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.allow, "sql-locks", "whether sessions may take locks in SQL, by fence.acquire: any lock below --lock-prefix")
	flags.Var(&f.maxTTL, "sql-lock-max-ttl", "the longest that such a lock may outlive its last fence.renew")
	flags.Var(&f.maxWait, "sql-lock-max-wait", "the longest that fence.acquire may wait; 0s never does")
	flags.Var(&f.maxLocksSession, "sql-locks-per-session", "how many such locks a session may hold")
}

func (f *lendingFlags) lending() proxy.Lending {
	return proxy.Lending{
		Allow: f.allow.value == lendingAllow, MaxTTL: time.Duration(f.maxTTL), MaxWait: time.Duration(f.maxWait), MaxLocks: int(f.maxLocksSession),
	}
}
