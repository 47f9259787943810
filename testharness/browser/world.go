package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// database is the one that sessions work in.
const database = "app"

// A world is what the page tells of. One request is carried out at a time.
type world struct {
	ctx     context.Context
	stack   *stack.Stack
	program string

	mu       sync.Mutex
	admin    string // where the proxy's admin port is, the same after a restart
	listen   string
	proxy    *stack.Process
	served   map[string]*stack.Process // other proxies
	sessions map[string]*session
	locks    map[string]*lock
}

type session struct{ conn *pgx.Conn }

type lock struct{ lease *leases.Lease }

func (w *world) furnish(ctx context.Context) error {
	if err := w.stack.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if err := w.stack.Install(ctx, database); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, w.stack.DSN(stack.RoleApp, database))
	if err != nil {
		return fmt.Errorf("connect for the first table: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE TABLE orders (id int PRIMARY KEY, status text); INSERT INTO orders VALUES (1, 'new')"); err != nil {
		return fmt.Errorf("make a table: %w", err)
	}
	for _, at := range []*string{&w.admin, &w.listen} {
		port, err := postgres.FreePort()
		if err != nil {
			return err
		}
		*at = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return w.start()
}

func (w *world) start() (err error) {
	w.proxy, err = w.stack.StartProcess(w.ctx, database, []string{w.program}, "--listen", w.listen, "--admin-listen", w.admin)
	return err
}

func (w *world) close() {
	for _, s := range w.sessions {
		_ = s.conn.Close(context.WithoutCancel(w.ctx))
	}
	if err := w.stack.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "browser: end the servers:", err)
	}
}

// A request is what a script wants.
type request struct {
	Do   string // a name of deeds
	Name string // of a session, a lock or another proxy
	Key  string
	// Role and Database are those of a session, if not those that most have.
	Role, Database string
	Application    string // that a session says; "" is its name
	// Token is what a session presents; "" is that of the lock called Name.
	Token string
	SQL   string
	Times int // how often to run it; 0 is once
	Flags []string
}

// ServeHTTP carries a request out. A deed that fails is the script's to judge.
func (w *world) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	deed := w.deeds()[q.Do]
	if deed == nil {
		http.Error(to, "no such deed: "+q.Do, http.StatusBadRequest)
		return
	}
	said, err := deed(q)
	if err != nil {
		http.Error(to, q.Do+": "+err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(to).Encode(said)
}

func (w *world) deeds() map[string]func(request) (any, error) {
	return map[string]func(request) (any, error){
		"page":    func(request) (any, error) { return "http://" + w.admin, nil },
		"hold":    w.hold,
		"release": w.release,
		"connect": w.connect,
		"run":     w.run,
		"leave":   w.leave,
		"stop":    func(request) (any, error) { w.proxy.Kill(); return nil, nil },
		"start":   func(request) (any, error) { return nil, w.start() },
		"admit":   w.admit,
		"serve":   w.serve,
		"end":     w.end,
		"etcd":    func(request) (any, error) { w.stack.Etcd.Close(); return nil, nil },
	}
}

// hold takes a lock, and answers with its token.
func (w *world) hold(q request) (any, error) {
	locker := leases.NewLocker(w.stack.Client)
	lease, err := locker.Acquire(w.ctx, q.Key)
	if err != nil {
		return nil, err
	}
	w.locks[q.Name] = &lock{lease}
	return lease.Token().String(), nil
}

func (w *world) release(q request) (any, error) {
	held := w.locks[q.Name]
	if held == nil {
		return nil, fmt.Errorf("no lock is called %q", q.Name)
	}
	delete(w.locks, q.Name)
	return nil, held.lease.Release(w.ctx)
}

// connect opens a session that is tagged, if there is a key.
func (w *world) connect(q request) (any, error) {
	config, err := pgx.ParseConfig(w.stack.ProxyDSN(w.listen, cmp.Or(q.Role, stack.RoleApp), cmp.Or(q.Database, database)))
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = cmp.Or(q.Application, q.Name)
	if q.Key != "" {
		config.RuntimeParams[fencing.SettingKey], config.RuntimeParams[fencing.SettingToken] = q.Key, q.Token
	}
	conn, err := pgx.ConnectConfig(w.ctx, config)
	if err != nil {
		return nil, err
	}
	w.sessions[q.Name] = &session{conn}
	return nil, nil
}

// run runs SQL in a session, and answers with the SQLSTATE of the last error.
func (w *world) run(q request) (any, error) {
	s := w.sessions[q.Name]
	if s == nil {
		return nil, fmt.Errorf("no session is called %q", q.Name)
	}
	var err error
	for range max(q.Times, 1) {
		_, err = s.conn.Exec(w.ctx, q.SQL, pgx.QueryExecModeSimpleProtocol)
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code, nil
	}
	return "", err
}

func (w *world) leave(q request) (any, error) {
	s := w.sessions[q.Name]
	if s == nil {
		return nil, fmt.Errorf("no session is called %q", q.Name)
	}
	delete(w.sessions, q.Name)
	return nil, s.conn.Close(w.ctx)
}

// admit makes a role and a database.
func (w *world) admit(q request) (any, error) {
	if err := w.stack.CreateMember(w.ctx, q.Role); err != nil {
		return nil, err
	}
	if err := w.stack.CreateDatabase(w.ctx, q.Database); err != nil {
		return nil, err
	}
	return nil, w.stack.Install(w.ctx, q.Database)
}

// serve starts another proxy, and answers with where its admin port is.
func (w *world) serve(q request) (any, error) {
	p, err := w.stack.StartProcess(w.ctx, database, []string{w.program}, q.Flags...)
	if err != nil {
		return nil, err
	}
	w.served[q.Name] = p
	return p.Admin, nil
}

// end kills another proxy.
func (w *world) end(q request) (any, error) {
	p := w.served[q.Name]
	if p == nil {
		return nil, fmt.Errorf("no proxy is called %q", q.Name)
	}
	delete(w.served, q.Name)
	p.Kill()
	return nil, nil
}
