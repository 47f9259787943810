package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// protectLockTimeout bounds the wait for a table's transactions to end: while
// it is waited for, nobody else can write to the table.
const protectLockTimeout = 10 * time.Second

// A ReplicaApply says what a guard does with the rows that a subscription of
// logical replication applies. They come without a tag.
type ReplicaApply string

const (
	// ReplicaUnset is refuse, but for a table that a subscription applies to
	// now: there one of the two has to be chosen.
	ReplicaUnset ReplicaApply = ""
	// ReplicaRefuse refuses them, and the subscription stands still.
	ReplicaRefuse ReplicaApply = "refuse"
	// ReplicaAllow lets them through: they were checked where they were
	// written, or should have been.
	ReplicaAllow ReplicaApply = "allow"
)

// A Protection is what Protect did.
type Protection struct {
	Table string // with its schema, quoted where need be
	Was   string // the template before; "" if the table was not guarded
	// Also are the partitions and inheritance children that are guarded with
	// it, those of later partitions' kind aside.
	Also []string
}

// Protect guards a table: a write is refused by PostgreSQL itself unless the
// session's tag names the key of each row, before and after, with its accepted
// token. It waits for the table's running transactions, so that none that began
// before it is left. A table that is guarded already gets its triggers made
// anew. The table is named as in SQL.
//
// The role must be a superuser, or a member both of the role that owns the
// table and of the one that owns schema fence.
func Protect(ctx context.Context, conn *pgx.Conn, table string, key Template, apply ReplicaApply) (p Protection, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		t, err := lockTable(ctx, tx, table)
		if err != nil {
			return err
		}
		p.Table = t.name
		if apply, err = t.admit(ctx, tx, key, apply); err != nil {
			return err
		}
		const register = `
			INSERT INTO fence.guarded VALUES ($1, $2, $3, now(), session_user)
			ON CONFLICT (relation) DO UPDATE SET template = excluded.template, replica_apply = excluded.replica_apply,
				since = excluded.since, by = excluded.by`
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT template FROM fence.guarded WHERE relation = $1), '')", t.oid).Scan(&p.Was); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, register, t.oid, key.text, string(apply)); err != nil {
			return err
		}
		if err := dropTriggers(ctx, tx, t.oid); err != nil {
			return err
		}
		p.Also, err = makeTriggers(ctx, tx, t, key, apply)
		return err
	})
	if err != nil {
		return Protection{}, fmt.Errorf("protect %s: %w", table, explained(err))
	}
	return p, nil
}

// Unprotect takes a table's guard away, and that of its partitions and
// inheritance children where they have none of their own. It returns the
// table's full name.
func Unprotect(ctx context.Context, conn *pgx.Conn, table string) (name string, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		t, err := lockTable(ctx, tx, table)
		if err != nil {
			return err
		}
		name = t.name
		if by, err := t.guardedAncestor(ctx, tx); err != nil {
			return err
		} else if by != "" && !t.guarded {
			return fmt.Errorf("it is guarded as a part of %s; run fenceproxy unprotect %s", by, by)
		}
		if !t.guarded && !t.triggers {
			return errors.New("it is not protected")
		}
		if err := dropTriggers(ctx, tx, t.oid); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM fence.guarded WHERE relation = $1", t.oid)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("unprotect %s: %w", table, explained(err))
	}
	return name, nil
}

// explained adds to PostgreSQL's word what to do.
func explained(err error) error {
	switch {
	case hasCode(err, codeLockTimeout):
		return fmt.Errorf("transactions that use the table didn't end in %v; try again when it is quieter: %w", protectLockTimeout, err)
	default:
		return err
	}
}

// A table is one that is to be guarded or no more, as it is now.
type table struct {
	oid        uint32
	name       string
	kind       string // pg_class.relkind
	child      bool   // a partition or inheritance child of another
	guarded    bool   // stands in fence.guarded
	triggers   bool   // has triggers of a guard, as a partition that was detached
	subscribed bool
}

// lockTable finds a table and keeps its writers out until the transaction ends.
func lockTable(ctx context.Context, tx pgx.Tx, named string) (t table, err error) {
	// The name is looked up as the session would, all else is not.
	var oid *uint32
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1)::oid", named).Scan(&oid); err != nil {
		return table{}, err
	}
	if oid == nil {
		return table{}, errors.New("there is no such table in this database")
	}
	const prepare = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
		pg_catalog.set_config('lock_timeout', $2, true), pg_catalog.pg_advisory_xact_lock($1)`
	if _, err := tx.Exec(ctx, prepare, installLock, protectLockTimeout.String()); err != nil {
		return table{}, err
	}
	if err := mayGuard(ctx, tx, *oid); err != nil {
		return table{}, err
	}
	if err := tx.QueryRow(ctx, "SELECT $1::oid::regclass::text", *oid).Scan(&t.name); err != nil {
		return table{}, err
	}
	if _, err := tx.Exec(ctx, "LOCK TABLE "+t.name+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return table{}, err
	}
	const look = `
		SELECT c.oid, c.relkind::text,
		       EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = c.oid),
		       EXISTS (SELECT FROM fence.guarded AS g WHERE g.relation = c.oid),
		       EXISTS (SELECT` + guardTriggers + ` AND t.tgrelid = c.oid),
		       EXISTS (SELECT FROM pg_subscription_rel AS s WHERE s.srrelid IN (SELECT c.oid UNION SELECT down.oid FROM down))
		FROM pg_class AS c WHERE c.oid = $1`
	err = tx.QueryRow(ctx, descendants+look, *oid).Scan(&t.oid, &t.kind, &t.child, &t.guarded, &t.triggers, &t.subscribed)
	return t, err
}

// mayGuard looks for what the rest needs: a table, schema fence in this
// program's version, and the role's rights on both.
func mayGuard(ctx context.Context, tx pgx.Tx, oid uint32) error {
	const query = `
		SELECT c.relkind::text, c.oid::regclass::text, c.relnamespace IN ('pg_catalog'::regnamespace, coalesce(to_regnamespace('fence'), 0)),
		       pg_has_role(c.relowner, 'USAGE'), pg_get_userbyid(c.relowner),
		       to_regclass('fence.guarded') IS NOT NULL,
		       coalesce((SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace AS n WHERE n.nspname = 'fence'), false),
		       coalesce((SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'fence'), ''),
		       quote_ident(current_user)
		FROM pg_class AS c WHERE c.oid = $1`
	var kind, name, owner, fenceOwner, self string
	var system, owns, installed, ownsFence bool
	if err := tx.QueryRow(ctx, query, oid).Scan(&kind, &name, &system, &owns, &owner, &installed, &ownsFence, &fenceOwner, &self); err != nil {
		return err
	}
	switch {
	case kind == "v", kind == "m":
		return errors.New("it is a view: guard the tables beneath it")
	case kind == "f":
		return errors.New("it is a foreign table: guard it in the database where its rows are")
	case kind != "r" && kind != "p", system:
		return errors.New("it is not a table of an application")
	case !installed:
		return errors.New("this database has no schema fence, or an old one: run fenceproxy init")
	case !ownsFence:
		return fmt.Errorf("role %s is neither a superuser nor a member of role %s, which owns schema fence", self, fenceOwner)
	case !owns:
		return fmt.Errorf("role %s may not alter the table: run as a superuser, or GRANT %s TO %s", self, pgx.Identifier{owner}.Sanitize(), self)
	}
	var version int
	if err := tx.QueryRow(ctx, "SELECT fence.version()").Scan(&version); err != nil {
		return err
	}
	if version != SchemaVersion {
		return fmt.Errorf("schema fence has version %d and this program works with %d: run fenceproxy init of the newer one", version, SchemaVersion)
	}
	return nil
}

// admit refuses what can't be guarded with this key, and settles apply.
func (t table) admit(ctx context.Context, tx pgx.Tx, key Template, apply ReplicaApply) (ReplicaApply, error) {
	const missing = `
		SELECT coalesce(min(k.name), '') FROM unnest($2::text[]) AS k (name)
		WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
			WHERE a.attrelid = $1 AND a.attname = k.name AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v')`
	var column string
	if err := tx.QueryRow(ctx, missing, t.oid, key.columns()).Scan(&column); err != nil {
		return apply, err
	}
	if column != "" {
		return apply, fmt.Errorf("it has no stored column %s", column)
	}
	by, err := t.guardedAncestor(ctx, tx)
	if err != nil {
		return apply, err
	}
	if by != "" && !t.guarded {
		return apply, fmt.Errorf("it is guarded already, as a part of %s", by)
	}
	const part = descendants + `
		SELECT coalesce(min(g.relation::text), '') FROM down JOIN fence.guarded AS g ON g.relation = down.oid`
	if err := tx.QueryRow(ctx, part, t.oid).Scan(&by); err != nil {
		return apply, err
	}
	if by != "" {
		return apply, fmt.Errorf("its part %s is guarded by itself; run fenceproxy unprotect %s", by, by)
	}
	if apply == ReplicaUnset {
		if t.subscribed {
			return apply, errors.New("a subscription applies rows to it, which have no tag: choose --replica-apply allow or refuse")
		}
		apply = ReplicaRefuse
	}
	return apply, nil
}

// guardedAncestor returns the table that t is a part of and guarded with, or "".
func (t table) guardedAncestor(ctx context.Context, tx pgx.Tx) (name string, err error) {
	const query = `
		WITH RECURSIVE up (oid) AS (
			SELECT inhparent FROM pg_inherits WHERE inhrelid = $1
			UNION SELECT i.inhparent FROM pg_inherits AS i JOIN up ON i.inhrelid = up.oid)
		SELECT coalesce(min(g.relation::text), '') FROM up JOIN fence.guarded AS g ON g.relation = up.oid`
	err = tx.QueryRow(ctx, query, t.oid).Scan(&name)
	return name, err
}
