// Package fencepgx has a program that uses pgx work under locks. Do takes a lock
// in etcd, runs the work under a context that ends when the lock is lost, and gives
// the lock back; a pool that was made with Configure presents the lock on every
// connection that is acquired under that context, so that the database refuses what
// a holder that lost its lock still sends:
//
//	config, err := pgxpool.ParseConfig("postgres://app@127.0.0.1:6433/app") // of fenceproxy
//	fencepgx.Configure(config)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
//	locker := leases.NewLocker(etcd)
//	err = fencepgx.Do(ctx, locker, "order:8472", func(ctx context.Context) error {
//		_, err := pool.Exec(ctx, "UPDATE orders SET paid = true WHERE id = 8472")
//		return err
//	})
//	if errors.Is(err, leases.ErrLost) {
//		// Somebody else may hold the lock now.
//	}
//
// Connections of no pool are tagged with Tag, single transactions with TagTx, which
// is the way behind a pooler that shares sessions.
//
// A tag is the setting fence.tokens of the session. What else the session presents,
// such as fence.key by PGOPTIONS, is left alone and counts too; a lock that the
// session took with fence.acquire is in fence.tokens, and given back when Tag sets it.
//
// A connection that is acquired under another context than that of the work is not
// tagged: a policy of untagged_writes: reject has the proxy refuse what is written
// through one. database/sql is such a case: it may open a connection for one query
// under a context of its own, so there each transaction is tagged by its first
// statement.
//
// It adds nothing to what package leases believes, and asks etcd nothing itself.
package fencepgx
