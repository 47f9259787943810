package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// A patient is a PostgreSQL and an etcd with nothing wrong.
type patient struct {
	t     *testing.T
	stack *stack.Stack
	super *pgx.Conn
}

// newPatient starts one that listens where another machine's clients could
// come, on an address that it doesn't have.
func newPatient(t *testing.T) *patient {
	t.Helper()
	s := stack.New(t, "app")
	config := open(t, s.DSN(postgres.Superuser, "app"))
	for _, set := range []string{"max_prepared_transactions = 2", "listen_addresses = '127.0.0.1,192.0.2.1'"} {
		exec1(t, config, "ALTER SYSTEM SET "+set)
	}
	exec1(t, config, "GRANT SELECT ON pg_hba_file_rules TO fence; GRANT EXECUTE ON FUNCTION pg_hba_file_rules() TO fence; CREATE TABLE orders (id int); ALTER TABLE orders OWNER TO app")
	config.Close(t.Context())
	if err := s.Postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &patient{t, s, open(t, s.DSN(postgres.Superuser, "app"))}
}

// sound sets what the servers of tests go without, to be faster.
func (p *patient) sound() {
	p.t.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET fsync = on", "ALTER SYSTEM SET full_page_writes = on", "SELECT pg_reload_conf()"} {
		exec1(p.t, p.super, sql)
	}
	p.finds("ok full_page_writes is on", p.dsn(), p.etcd())
}

// diagnose returns the level, text and advice of each finding, a line each.
func (p *patient) diagnose(dsn, etcd string, flags ...string) (lines []string) {
	p.t.Helper()
	said, err := command(p.t, "", append([]string{"doctor", "--upstream", dsn, "--etcd", etcd, "--json"}, flags...)...)
	var report struct {
		Findings []struct{ Level, Text, Do string }
	}
	if json.Unmarshal([]byte(said), &report) != nil {
		p.t.Fatalf("got %v, %q", err, said)
	}
	fails := false
	for _, f := range report.Findings {
		lines = append(lines, f.Level+" "+f.Text+" → "+f.Do)
		fails = fails || f.Level == "fail"
	}
	var status exitStatus
	if fails != (errors.As(err, &status) && status == 1) || !fails && err != nil {
		p.t.Errorf("got %v, want exit status 1 if something failed, and only then:\n%s", err, strings.Join(lines, "\n"))
	}
	return lines
}

func (p *patient) dsn() string  { return p.stack.DSN(stack.RoleFence, "app") }
func (p *patient) etcd() string { return p.stack.Etcd.Endpoint() }

// finds polls until a finding has all of a text's parts, which … stands between:
// PostgreSQL takes its time to read its files again.
func (p *patient) finds(want, dsn, etcd string, flags ...string) {
	p.t.Helper()
	var lines []string
	for range 50 {
		lines = p.diagnose(dsn, etcd, flags...)
		for _, line := range lines {
			if hasParts(line, want) {
				return
			}
		}
		exec1(p.t, p.super, "SELECT pg_sleep(0.1)")
	}
	p.t.Errorf("got\n%s\nwant %q", strings.Join(lines, "\n"), want)
}

func hasParts(line, parts string) bool {
	for part := range strings.SplitSeq(parts, "…") {
		_, rest, found := strings.Cut(line, part)
		if !found {
			return false
		}
		line = rest
	}
	return true
}

// append adds to a file of the server, and returns what takes it out again.
func (p *patient) append(file, before, after string) (undo func()) {
	p.t.Helper()
	path := filepath.Join(p.stack.Postgres.DataDir(), file)
	had, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
		exec1(p.t, p.super, "SELECT pg_reload_conf()")
	}
	write(before + string(had) + after)
	return func() { write(string(had)) }
}

// Every finding is produced for real, and gone when its cause is.
func TestDoctor_Findings(t *testing.T) {
	p := newPatient(t)
	p.sound()
	healthy := func() {
		t.Helper()
		var bad []string
		for range 50 {
			bad = nil
			for _, line := range p.diagnose(p.dsn(), p.etcd()) {
				if !strings.HasPrefix(line, "ok ") {
					bad = append(bad, line)
				}
			}
			if bad == nil {
				return
			}
			exec1(t, p.super, "SELECT pg_sleep(0.1)")
		}
		t.Fatalf("got %q, want nothing to find", bad)
	}
	healthy()
	for name, c := range map[string]struct{ ill, want, cure string }{
		"fsync":              {"ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()", "fail fsync is off…→ ALTER SYSTEM SET fsync = on", "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()"},
		"full_page_writes":   {"ALTER SYSTEM SET full_page_writes = off; SELECT pg_reload_conf()", "warn full_page_writes is off", "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()"},
		"synchronous_commit": {"ALTER SYSTEM SET synchronous_commit = local; SELECT pg_reload_conf()", "warn synchronous_commit is local", "ALTER SYSTEM RESET synchronous_commit; SELECT pg_reload_conf()"},
		"a role's commits":   {"ALTER ROLE app SET synchronous_commit = off", "warn synchronous_commit is off or local for a role…→ ALTER ROLE app RESET synchronous_commit;", "ALTER ROLE app RESET synchronous_commit"},
		"no standby":         {"SET synchronous_commit = local; ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()", "warn no standby of synchronous_standby_names (nobody) is connected", "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()"},
		"prepared":           {"BEGIN; CREATE TABLE made (i int); PREPARE TRANSACTION 'two'", "warn prepared transactions hold their locks…'two'", "ROLLBACK PREPARED 'two'"},
		"may not signal":     {"REVOKE pg_signal_backend FROM fence", "fail role fence may not end what blocks a claim → GRANT pg_signal_backend TO fence", "GRANT pg_signal_backend TO fence"},
		"may not see":        {"REVOKE pg_read_all_stats FROM fence", "fail role fence may not see what blocks a claim → GRANT pg_read_all_stats TO fence", "GRANT pg_read_all_stats TO fence"},
		"old schema":         {"UPDATE fence.meta SET version = version - 1", "fail schema fence has version…→ fenceproxy init", "UPDATE fence.meta SET version = version + 1"},
		"no check":           {"REVOKE USAGE ON SCHEMA fence FROM PUBLIC", "fail applications may not run fence.check…→ fenceproxy init", "GRANT USAGE ON SCHEMA fence TO PUBLIC"},
		"writes marks":       {"GRANT UPDATE (token) ON fence.mark TO app", "fail may write the tables of schema fence, and so move marks: app", "REVOKE UPDATE (token) ON fence.mark FROM app"},
		"public writes":      {"GRANT DELETE ON fence.lineage TO PUBLIC", "fail may write the tables of schema fence…app", "REVOKE DELETE ON fence.lineage FROM PUBLIC"},
		"creates":            {"GRANT CREATE ON SCHEMA fence TO app", "fail may create objects in schema fence: app", "REVOKE CREATE ON SCHEMA fence FROM app"},
		"owns a function":    {"GRANT CREATE ON SCHEMA fence TO app; ALTER FUNCTION fence.check_key OWNER TO app", "fail own something in schema fence, and are not its owner: app", "ALTER FUNCTION fence.check_key OWNER TO fence; REVOKE CREATE ON SCHEMA fence FROM app"},
		"a member":           {"GRANT fence TO app", "warn members of the role that owns schema fence…app", "REVOKE fence FROM app"},
		"claims":             {"GRANT EXECUTE ON FUNCTION fence.claim TO app", "warn may run fence.claim…app", "REVOKE EXECUTE ON FUNCTION fence.claim FROM app"},
		"one role for all":   {"ALTER TABLE orders OWNER TO fence", "fail role fence owns schema fence and orders", "ALTER TABLE orders OWNER TO app"},
		"a superuser":        {"CREATE ROLE boss SUPERUSER LOGIN", "warn superusers can move marks…boss", "DROP ROLE boss"},
		"super proxies":      {"ALTER ROLE fence SUPERUSER", "warn the proxies' role fence…is a superuser", "ALTER ROLE fence NOSUPERUSER"},
		"a role's tag":       {`ALTER ROLE app IN DATABASE app SET fence.key = 'a'`, "warn a setting of a role…(LF002) → ALTER ROLE app IN DATABASE app RESET fence.key;", "ALTER ROLE app IN DATABASE app RESET fence.key"},
		"a database's tag":   {`ALTER DATABASE app SET "fence.Token" = '7'`, "warn a setting of a role…→ ALTER DATABASE app RESET fence.", "ALTER DATABASE app RESET ALL"},
		"hidden rules":       {"REVOKE EXECUTE ON FUNCTION pg_hba_file_rules() FROM fence", "warn PostgreSQL listens on 127.0.0.1,192.0.2.1, and who may connect can't be seen…→ As a superuser: GRANT", "GRANT EXECUTE ON FUNCTION pg_hba_file_rules() TO fence"},
		"another etcd":       {"INSERT INTO fence.lineage VALUES (1, 'feed', now(), '')", "fail etcd is cluster…and the marks came from cluster feed…(LF006) → …adopt-lineage", "DELETE FROM fence.lineage"},
	} {
		t.Run(name, func(t *testing.T) {
			one := *p
			one.t = t
			for statement := range strings.SplitSeq(c.ill, "; ") {
				exec1(t, p.super, statement)
			}
			one.finds(c.want, p.dsn(), p.etcd())
			for statement := range strings.SplitSeq(c.cure, "; ") {
				exec1(t, p.super, statement)
			}
		})
	}
	healthy()
}

// Who comes past the proxy by pg_hba.conf.
func TestDoctor_Addresses(t *testing.T) {
	p := newPatient(t)
	for name, c := range map[string]struct {
		lines string
		wants []string
	}{
		"everybody":        {"host all all 0.0.0.0/0 scram-sha-256", []string{"warn pg_hba.conf line 2 lets clients of other machines in past the proxy: host all all 0.0.0.0 0.0.0.0 scram-sha-256", "warn roles that can get round the proxy: app"}},
		"without password": {"host app app 192.0.2.0/24 trust", []string{"fail pg_hba.conf line 2 lets…trust", "warn roles that can get round the proxy: app"}},
		"a group":          {"host sameuser +pg_monitor all md5\nhost all +app samenet md5", []string{"warn pg_hba.conf line 3 lets", "warn roles that can get round the proxy: app"}},
		"a broken line":    {"host all all nonsense/99 md5", []string{"warn pg_hba.conf line 2 can't be read: "}},
		"other databases":  {"host postgres all all md5\nhost all fence all md5\nlocal all all md5\nhost all app 127.0.0.0/8 md5\nhost all app samehost md5", []string{"ok no line of pg_hba.conf lets a role past"}},
		"rejected":         {"host all all 0.0.0.0/0 reject\nhost all all ::/0 reject\nhost all all all md5", []string{"ok no line of pg_hba.conf lets a role past"}},
		"partly rejected":  {"host all all 192.0.2.0/24 reject\nhost all all 0.0.0.0/0 md5", []string{"warn pg_hba.conf line 3 lets", "warn roles that can get round the proxy: app"}},
	} {
		t.Run(name, func(t *testing.T) {
			one := *p
			one.t = t
			// Doctor itself must still get in.
			defer one.append("pg_hba.conf", "host all fence 127.0.0.1/32 scram-sha-256\n"+c.lines+"\n", "")()
			for _, want := range c.wants {
				one.finds(want, p.dsn(), p.etcd())
			}
		})
	}
}

func TestDoctor_Guards(t *testing.T) {
	p := newPatient(t)
	super := p.stack.DSN(postgres.Superuser, "app")
	exec1(t, p.super, "CREATE ROLE keeper; ALTER TABLE orders OWNER TO keeper; CREATE TABLE parted (id int) PARTITION BY LIST (id); CREATE TABLE one PARTITION OF parted DEFAULT; ALTER TABLE parted OWNER TO keeper; ALTER TABLE one OWNER TO keeper")
	for _, table := range []string{"orders", "parted"} {
		if _, err := command(t, "", "protect", table, "--key", "order:{id}", "--upstream", super); err != nil {
			t.Fatal(err)
		}
	}
	p.finds("ok 3 tables with a whole guard", p.dsn(), p.etcd())
	for _, c := range []struct{ ill, want string }{
		{"ALTER TABLE orders DISABLE TRIGGER fence_guard_update", "fail table orders is not guarded as it should be: trigger fence_guard_update is disabled → fenceproxy protect orders again"},
		{"ALTER TABLE orders ENABLE TRIGGER fence_guard_update", "ok 3 tables with a whole guard"},
		{"ALTER TABLE orders ENABLE TRIGGER fence_guard_rows", "fail table orders…trigger fence_guard_rows doesn't fire when it should"},
		{"ALTER TABLE orders ENABLE REPLICA TRIGGER fence_guard_rows", "ok 3 tables with a whole guard"},
		{"CREATE TABLE two PARTITION OF parted FOR VALUES IN (2)", "fail table two is not guarded as it should be: trigger fence_guard_truncate is missing"},
		{"DROP TRIGGER fence_guard_insert ON parted", "fail table parted is not guarded as it should be: trigger fence_guard_insert is missing"},
		{"DROP TABLE two", "fail table parted"},
		{"CREATE TRIGGER fence_guard_insert AFTER INSERT ON parted REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('refuse', 'order:', 'id')", "ok 3 tables with a whole guard"},
		{"ALTER TABLE one OWNER TO app", "warn roles that may log in own guarded tables…app"},
		{"DROP TRIGGER fence_guard_delete ON orders", "fail table orders…trigger fence_guard_delete is missing"},
		{"DROP TABLE orders", "warn the guarded table…is gone → DELETE FROM fence.guarded"},
	} {
		exec1(t, p.super, c.ill)
		p.finds(c.want, p.dsn(), p.etcd())
	}
}

// Partitions and inheritance children that came after protect are named, each
// with what it lacks, and protect again mends them.
func TestDoctor_LaterChildren(t *testing.T) {
	p := newPatient(t)
	exec1(t, p.super, "CREATE TABLE parted (id int) PARTITION BY LIST (id); CREATE TABLE parent (id int)")
	protect := func(table string) {
		t.Helper()
		if _, err := command(t, "", "protect", table, "--key", "order:{id}", "--upstream", p.stack.DSN(postgres.Superuser, "app")); err != nil {
			t.Fatal(err)
		}
	}
	protect("parted")
	protect("parent")
	for _, c := range []struct{ root, later, lacks string }{
		{"parted", "CREATE TABLE later PARTITION OF parted FOR VALUES IN (1)", "trigger fence_guard_truncate is missing"},
		{"parted", "CREATE TABLE later (id int); ALTER TABLE parted ATTACH PARTITION later FOR VALUES IN (1)", "trigger fence_guard_truncate is missing"},
		{"parted", "CREATE TABLE later PARTITION OF parted FOR VALUES IN (1) PARTITION BY LIST (id); CREATE TABLE below PARTITION OF later DEFAULT", "trigger fence_guard_truncate is missing"},
		{"parent", "CREATE TABLE later () INHERITS (parent)", "trigger fence_guard_"},
		{"parent", "CREATE TABLE later (id int); ALTER TABLE later INHERIT parent", "trigger fence_guard_"},
	} {
		exec1(t, p.super, c.later)
		p.finds("fail table later is not guarded as it should be: "+c.lacks+"…→ fenceproxy protect "+c.root+" again", p.dsn(), p.etcd())
		protect(c.root)
		tables := 3
		if strings.Contains(c.later, "below") {
			tables++
		}
		p.finds(fmt.Sprintf("ok %d tables with a whole guard", tables), p.dsn(), p.etcd())
		exec1(t, p.super, "DROP TABLE later")
	}
}

// What has to do with etcd, with other servers, and with the command line.
func TestDoctor_Sides(t *testing.T) {
	p := newPatient(t)
	if err := p.stack.CreateDatabase(t.Context(), "bare"); err != nil {
		t.Fatal(err)
	}
	away := "http://127.0.0.1:1"
	p.finds("fail no new claim can be verified: etcd can't be reached", p.dsn(), away)
	p.finds("warn member "+away+": etcd can't be reached", p.dsn(), p.etcd()+","+away)
	p.finds("fail schema fence is not installed…→ fenceproxy init --upstream 'postgres://fence@", p.stack.DSN(stack.RoleFence, "bare"), p.etcd())
	p.finds("fail connect to PostgreSQL at 127.0.0.1:1", "postgres://fence:hunter2@127.0.0.1:1/app", p.etcd())
	addr := p.stack.Postgres.Addr()
	two := strings.Replace(p.dsn(), addr, addr+",127.0.0.1:1", 1)
	p.finds("warn server 127.0.0.1:1: ", two, p.etcd())
	p.finds("ok server "+addr+" is the primary, timeline 1", two, p.etcd())
	p.finds("warn role fence may not read pg_authid…→ GRANT SELECT (rolname, rolpassword) ON pg_authid TO fence", p.dsn(), p.etcd(), "--client-tls", "require")

	undo := p.append("postgresql.conf", "", "\nfence.key = 'everybody'\n")
	p.finds("warn fence.key is set in postgresql.conf", p.dsn(), p.etcd())
	undo()

	lease := hold(t, p.stack.Client, "order:1")
	serve := serveOn(t, p.stack)
	open(t, p.stack.ProxyDSN(serve.Addr, stack.RoleApp, "app"), tagged("order:1", lease.Token())...)
	p.finds("ok epoch 1, cluster…seen up to revision "+lease.Token().String(), p.dsn(), p.etcd())
	exec1(t, p.super, "INSERT INTO fence.mark SELECT 'order:2', 9999999, '', 1, now(), ''")
	p.finds("fail …9999999…(LF006)", p.dsn(), p.etcd())
	if _, err := p.stack.Client.Put(t.Context(), leases.DefaultPrefix+"a/b/1", ""); err != nil {
		t.Fatal(err)
	}
	p.finds("warn below /fenceproxy/locks/ there are keys…/a/b/1", p.dsn(), p.etcd())
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(p.stack.Client.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	p.finds("fail member…NOSPACE → etcdctl alarm list", p.dsn(), p.etcd())
}

func TestDoctor_Standbys(t *testing.T) {
	p := newPatient(t)
	postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM, Password: "test", StandbyOf: p.stack.Postgres})
	p.finds("warn 1 standby server, none synchronous: a failover can lose", p.dsn(), p.etcd())
	exec1(t, p.super, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	exec1(t, p.super, "SELECT pg_reload_conf()")
	p.finds("ok 1 synchronous standby: a failover to it loses nothing", p.dsn(), p.etcd())
}

// What people read fits a terminal, and has no colours where there is none.
func TestDoctor_Text(t *testing.T) {
	p := newPatient(t)
	p.sound()
	exec1(t, p.super, "CREATE ROLE boss SUPERUSER LOGIN")
	got, err := command(t, "", "doctor", "--upstream", p.dsn(), "--etcd", p.etcd())
	for _, want := range []string{
		"PostgreSQL " + p.stack.Postgres.Addr() + " (database app)\n  ok    version ",
		"\n\nDurability\n  ok    fsync is on\n",
		"\n  warn  superusers can move marks and switch guards off, and no claim can end\n        their sessions: boss\n        → ALTER ROLE … NOSUPERUSER for each that an application uses.\n",
		" ok, 1 warning, no failure\n",
	} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("got %v\n%s\nwant %q in it", err, got, want)
		}
	}
	for line := range strings.Lines(got) {
		if len([]rune(line)) > pageWidth+1 || strings.Contains(line, "\x1b") {
			t.Errorf("a line is wider than %d or coloured: %q", pageWidth, line)
		}
	}
}

// doctor knows the policies: names that there are none of, and whether the locks
// can be watched where that is needed.
func TestDoctor_Policies(t *testing.T) {
	p := newPatient(t)
	const watched = "can be watched"
	p.finds("ok untagged_writes allow and fencing accepted for all, and 0 rules", p.dsn(), p.etcd())
	for _, line := range p.diagnose(p.dsn(), p.etcd()) {
		if strings.Contains(line, watched) {
			t.Errorf("got %q, which no policy needs", line)
		}
	}
	rules := []string{"--untagged-writes", "observe", "--policies",
		"[{role: app, fencing: live}, {database: ap, role: nobody, untagged_writes: allow}, {database: 'ap*', untagged_writes: allow}]"}
	p.finds("warn rule 2 of --policies names database ap, and there is none", p.dsn(), p.etcd(), rules...)
	p.finds("warn rule 2 of --policies names role nobody, and there is none", p.dsn(), p.etcd(), rules...)
	p.finds("ok the locks "+watched, p.dsn(), p.etcd(), rules...)
	for _, line := range p.diagnose(p.dsn(), p.etcd(), rules...) {
		if strings.Contains(line, "rule 1") || strings.Contains(line, "rule 3") {
			t.Errorf("got %q of a rule that is right", line)
		}
	}
	p.finds("ok untagged_writes allow and fencing live for all, and 1 rule ", p.dsn(), p.etcd(), "--fencing", "live", "--policies", "[{database: app, untagged_writes: reject}]")
	p.stack.Etcd.Close()
	p.finds("fail the locks can't be watched", p.dsn(), p.etcd(), rules...)
}
