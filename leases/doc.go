// Package leases is all that fenceproxy does with etcd. For holders it takes a
// lock, renews it and gives it back (Locker, Lease); for claims it says
// whether a token is the current holder's (Authority); and it can be the etcd
// itself, a single node in this process (Embedded).
//
// Locks are those of etcd's own concurrency package, so a holder may as well
// be `etcdctl lock` or any other etcd client. A token is the create revision
// of the holder's key, never the revision in a response's header.
//
// It refuses to believe that a lock is held because Lock returned: it reads
// the key back. And it refuses to call a lock held for longer than the time to
// live of its lease, counted from when the last successful renewal was sent.
// It knows nothing of PostgreSQL, and it keeps nothing on disk but the
// embedded etcd's own folder.
//
// Package fencing asks an Authority through an interface of its own; the
// command line uses the rest.
package leases
