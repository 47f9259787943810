// Package leases is all that fenceproxy does with etcd. For holders it takes a
// lock, renews it and gives it back (Locker, Lease); for claims it says
// whether a token is the current holder's (Authority). Package embedded below it
// can be the etcd itself, a single node in the process.
//
// # For programs that hold locks
//
// NewClient, NewLocker, Locker.Acquire and Lease are for programs that work under a
// lock, and Metrics for their /metrics; they are meant to stay as they are.
//
//	client, err := leases.NewClient([]string{"http://127.0.0.1:2379"}, nil)
//	lease, err := leases.NewLocker(client).Acquire(ctx, "order:8472")
//	defer lease.Release(ctx)
//
// Run the work under lease.Context(), and present lease.Key() and lease.Token() to
// fenceproxy as fence.key and fence.token; package fencepgx below this one does both
// for pgx. Errors are told apart with errors.Is:
//
//	ErrTaken        somebody else holds the lock, or held it until ctx ended
//	ErrLost         the lease ran out or was revoked, or the lock's key was deleted:
//	                stop; whoever acquires again gets a higher token
//	ErrReleased     Release was called; only ever the cause of an ended Context
//	ErrUnavailable  etcd could not be asked, or did not answer in time: try again
//	ErrInvalid      the key, the time to live or an endpoint can't be right
//
// The rest serves the proxy and its commands, and changes as they do.
//
// # What it believes
//
// Locks are those of etcd's own concurrency package, so a holder may as well
// be `etcdctl lock` or any other etcd client. A token is the create revision
// of the holder's key, never the revision in a response's header.
//
// It refuses to believe that a lock is held because Lock returned: it reads
// the key back. And it refuses to call a lock held for longer than the time to
// live of its lease, counted from when the last successful renewal was sent.
// It knows nothing of PostgreSQL, and keeps nothing on disk.
//
// Package fencing asks an Authority through an interface of its own; the
// command line uses the rest.
package leases
