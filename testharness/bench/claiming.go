package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// claimKey is the lock that changes hands.
const claimKey = "bench-claimed"

// claimers are those who make a token known to PostgreSQL.
func claimers() []contender {
	return []contender{
		{name: "by hand: etcd read, UPDATE", route: direct},
		{name: "fenceproxy", route: fenceproxy},
	}
}

// holders are those who sit in an open transaction when their lock is taken
// over, by where their session is.
func holders() []contender {
	return []contender{
		{name: "holder at the same fenceproxy", route: fenceproxy},
		{name: "holder at another fenceproxy", route: another},
	}
}

// fillClaims makes the table of marks of whoever claims by hand.
func (r *rig) fillClaims(ctx context.Context) error {
	return r.admin(ctx, stack.RoleApp, "CREATE TABLE hand_claim (key text PRIMARY KEY, token bigint)",
		"INSERT INTO hand_claim VALUES ('"+claimKey+"', 0)", "CREATE TABLE hand_written (i int)")
}

// claiming measures claims of a lock that somebody just acquired.
func claiming(ctx context.Context, r *rig, o options, c contender) (sample, error) {
	s := nothing()
	conn, err := r.connect(ctx, c)
	if err != nil {
		return s, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	m, err := r.peers[c.route].meter()
	if err != nil {
		return s, err
	}
	claim := r.claimByHand
	if c.route == fenceproxy {
		claim = present
	}
	var times []time.Duration
	for end := time.Now().Add(o.length()); time.Now().Before(end); {
		took, err := r.held(ctx, func(token fencing.Token) error { return claim(ctx, conn, token) })
		if err != nil {
			return s, err
		}
		times = append(times, took)
	}
	s.took(times)
	return s, m.read(&s, float64(len(times)))
}

// held acquires the lock, times what its holder does, and releases it.
func (r *rig) held(ctx context.Context, do func(fencing.Token) error) (time.Duration, error) {
	lease, err := leases.NewLocker(r.stack.Client).Acquire(ctx, claimKey)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = do(lease.Token())
	took := time.Since(began)
	return took, errors.Join(err, lease.Release(ctx))
}

// claimByHand asks etcd who holds the lock, and remembers it.
func (r *rig) claimByHand(ctx context.Context, conn *pgx.Conn, token fencing.Token) error {
	got, err := r.stack.Client.Get(ctx, leases.DefaultPrefix+claimKey+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	if len(got.Kvs) != 1 || got.Kvs[0].CreateRevision != int64(token) {
		return errors.New("etcd names another holder")
	}
	_, err = conn.Exec(ctx, "UPDATE hand_claim SET token = $2 WHERE key = $1 AND token < $2", claimKey, int64(token))
	return err
}

// present tags a session, which has the proxy claim.
func present(ctx context.Context, conn *pgx.Conn, token fencing.Token) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(`SET %s = '{"%s": %v}'`, fencing.SettingTokens, claimKey, token))
	return err
}

// takingOver measures from the lock acquired to the new holder's first write
// committed, while the old one has an open transaction that wrote.
func takingOver(ctx context.Context, r *rig, o options, c contender) (sample, error) {
	s := nothing()
	var times []time.Duration
	for range o.takeovers {
		took, err := r.takeOver(ctx, c)
		if err != nil {
			return s, err
		}
		times = append(times, took)
	}
	s.took(times)
	return s, nil
}

func (r *rig) takeOver(ctx context.Context, c contender) (time.Duration, error) {
	holder, err := r.connect(ctx, c)
	if err != nil {
		return 0, err
	}
	defer holder.Close(context.WithoutCancel(ctx))
	successor, err := r.connect(ctx, contender{name: "successor", route: fenceproxy})
	if err != nil {
		return 0, err
	}
	defer successor.Close(context.WithoutCancel(ctx))
	_, err = r.held(ctx, func(token fencing.Token) error { return tagAndWrite(ctx, holder, token, "BEGIN; "+write) })
	if err != nil {
		return 0, fmt.Errorf("sit in an open transaction: %w", err)
	}
	return r.held(ctx, func(token fencing.Token) error { return tagAndWrite(ctx, successor, token, write) })
}

// write is one that waits for nobody but the checks.
const write = "INSERT INTO hand_written VALUES (1)"

// tagAndWrite presents the lock and runs statements under it.
func tagAndWrite(ctx context.Context, conn *pgx.Conn, token fencing.Token, sql string) error {
	if err := present(ctx, conn, token); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}
