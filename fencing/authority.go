package fencing

import "context"

// Authority says whether a token is the current holder's. (implemented by leases.Authority)
type Authority interface {
	// Verify asks with one linearizable read. A nil error means: at the time of
	// the read, token was the create revision of the holder's key of lock key.
	// Otherwise *Error with CodeNotHolder (the hint tells waiter, header
	// revision, lease ID, gone, with the right number) or CodeUnverified
	// (unreachable, no leader, time-out).
	Verify(ctx context.Context, key string, token Token) (Verification, error)
}

// A Verification is what one read of the lock service showed.
type Verification struct {
	LockKey  string // etcd key of the holder
	Cluster  string // etcd cluster id, hex
	Revision int64  // header revision of the read

	epoch int32 // of the lineage that the Claimer knew before the read
}
