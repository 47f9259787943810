package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// most is how many sessions a peer takes, more than any workload has.
const most = 6000

// pgbouncerConfig is PgBouncer as it comes, but for room for all sessions, TLS
// towards clients, and the parameters that pgx sends.
const pgbouncerConfig = `[databases]
%[1]s = host=127.0.0.1 port=%[2]d dbname=%[1]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[3]d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %[4]s
admin_users = %[5]s
pool_mode = session
max_client_conn = %[6]d
default_pool_size = %[6]d
server_tls_sslmode = disable
client_tls_sslmode = allow
client_tls_cert_file = %[7]s
client_tls_key_file = %[8]s
`

// haproxyConfig has HAProxy pass bytes on, TLS too.
const haproxyConfig = `global
    maxconn %[1]d
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen postgres
    bind 127.0.0.1:%[2]d
    server postgres 127.0.0.1:%[3]d
`

// peer returns the server of a route, which it starts if need be.
func (r *rig) peer(ctx context.Context, way route) (p *peer, err error) {
	if p := r.peers[way]; p != nil {
		return p, nil
	}
	switch way {
	case direct:
		p = &peer{addr: r.stack.Postgres.Addr(), stop: func() {}}
	case pgbouncer:
		p, err = r.startPgBouncer(ctx)
	case haproxy:
		p, err = r.startHAProxy(ctx)
	case fenceproxy, another:
		p, err = r.startFenceproxy(ctx)
	default:
		err = fmt.Errorf("there is no %v", way)
	}
	if err == nil {
		r.peers[way] = p
	}
	return p, err
}

// end ends the server of a route, with its sessions.
func (r *rig) end(way route) {
	if p := r.peers[way]; p != nil {
		p.stop()
		delete(r.peers, way)
	}
}

func (r *rig) startPgBouncer(ctx context.Context) (*peer, error) {
	port, err := postgres.FreePort()
	if err != nil {
		return nil, err
	}
	config, err := r.write("pgbouncer.ini", fmt.Sprintf(pgbouncerConfig, database, r.stack.Postgres.Port(), port,
		r.passwords, stack.RoleApp, most, r.cert, r.key))
	if err != nil {
		return nil, err
	}
	args := []string{config}
	if os.Geteuid() == 0 {
		args = append(args, "-u", postgres.Superuser) // it doesn't run as root
	}
	return r.launch(ctx, port, "pgbouncer", args...)
}

func (r *rig) startHAProxy(ctx context.Context) (*peer, error) {
	port, err := postgres.FreePort()
	if err != nil {
		return nil, err
	}
	config, err := r.write("haproxy.cfg", fmt.Sprintf(haproxyConfig, most, port, r.stack.Postgres.Port()))
	if err != nil {
		return nil, err
	}
	return r.launch(ctx, port, "haproxy", "-db", "-f", config)
}

// launch starts a program that listens on a port.
func (r *rig) launch(ctx context.Context, port int, name string, args ...string) (*peer, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return startPeer(ctx, addr, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, r.stack.ProxyDSN(addr, stack.RoleApp, database))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}, name, args...)
}

func (r *rig) startFenceproxy(ctx context.Context) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	process, err := r.stack.StartProcess(ctx, database, []string{r.program}, "--auth-file", r.passwords,
		"--client-tls", "allow", "--client-tls-cert", r.cert, "--client-tls-key", r.key)
	if err != nil {
		return nil, err
	}
	return &peer{addr: process.Addr, pid: process.PID(), stop: process.Kill}, nil
}

// write writes a file that the server's user can read, whoever that is.
func (r *rig) write(name, text string) (string, error) {
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, r.give(path)
}

// give makes a path the server's user's.
func (r *rig) give(path string) error {
	info, err := os.Stat(r.stack.Postgres.DataDir())
	if err != nil {
		return fmt.Errorf("find who runs PostgreSQL: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return os.Lchown(path, int(owner.Uid), int(owner.Gid))
}
