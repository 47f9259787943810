package clients_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenceproxy/fenceproxy/leases"
	"github.com/fenceproxy/fenceproxy/testharness/clients"
)

// The pages of documented programs, each behind the comment that names it.
var documentedOn = []string{"../../docs/tagging.md", "../../docs/sql-locks.md"}

// A documented program is one that readers can take as it stands.
type documented struct {
	name   string
	client string // the one of clients.All whose driver it uses
	file   string // what it is stored as
	alone  bool   // it takes its lock itself
}

func allDocumented() []documented {
	return []documented{
		{"psql-lock", "psql", "pay.sh", true},
		{"psql", "psql", "pay.sh", false},
		{"cron", "psql", "crontab", true},
		{"go", "pgx", "main.go", false},
		{"go-fencepgx", "pgx", "main.go", true},
		{"python", "psycopg", "pay.py", false},
		{"node", "node-postgres", "pay.js", false},
		{"java", "pgjdbc", "Pay.java", false},
		{"ruby", "ruby-pg", "pay.rb", false},
		{"php", "PDO_pgsql", "pay.php", false},
		{"sql-psql", "psql", "locked.sh", true},
		{"sql-python", "psycopg", "locked.py", true},
		{"sql-node", "node-postgres", "locked.js", true},
		{"sql-java", "pgjdbc", "Locked.java", true},
		{"sql-ruby", "ruby-pg", "locked.rb", true},
		{"sql-php", "PDO_pgsql", "locked.php", true},
		{"sql-go", "pgx", "main.go", true},
	}
}

// block matches a block of a page, with the mark before it if it has one.
var block = regexp.MustCompile("(?s)(?:<!-- runs: ([a-z-]+) -->\n)?```([a-z]*)\n(.*?)```\n")

// documentedTexts are the texts of all pages' programs by their names. What is SQL
// alone is no program.
func documentedTexts(t *testing.T) map[string]string {
	t.Helper()
	programs := map[string]string{}
	for _, at := range documentedOn {
		page, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range block.FindAllStringSubmatch(string(page), -1) {
			switch name, language := b[1], b[2]; {
			case programs[name] != "":
				t.Errorf("%s: there are two programs %s", at, name)
			case name != "":
				programs[name] = b[3]
			case language != "" && language != "sql":
				t.Errorf("%s has a block of %s that no test runs:\n%s", at, language, b[3])
			}
		}
	}
	return programs
}

// TestTagging_AllRun: the pages have no program that isn't run, and none is missing.
func TestTagging_AllRun(t *testing.T) {
	programs := documentedTexts(t)
	for _, d := range allDocumented() {
		if programs[d.name] == "" {
			t.Errorf("no page has the program %s", d.name)
		}
		delete(programs, d.name)
	}
	for name := range programs {
		t.Errorf("no test runs the program %s", name)
	}
}

// TestTagging_Programs runs the documented programs whose clients FENCE_CLIENTS
// names, as they stand on their pages.
func TestTagging_Programs(t *testing.T) {
	picked, err := clients.Select(os.Getenv("FENCE_CLIENTS"))
	if err != nil {
		t.Fatal(err)
	}
	programs, r := documentedTexts(t), newRig(t)
	for _, d := range allDocumented() {
		i := slices.IndexFunc(picked, func(c clients.Client) bool { return c.Name == d.client })
		if i < 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			command := r.store(t, d, picked[i], programs[d.name])
			r.holds(t, d, command)
			if !d.alone {
				r.isStale(t, d, command)
			}
		})
	}
}

// store puts a program into a folder and returns the command that runs it.
func (r *rig) store(t *testing.T, d documented, c clients.Client, text string) []string {
	t.Helper()
	if d.alone {
		text = strings.NewReplacer("http://127.0.0.1:2379", r.stack.Etcd.Endpoint(), "=6433", "="+port(t, r.proxy.Addr)).Replace(text)
	}
	path := filepath.Join(t.TempDir(), d.file)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	switch {
	case c.GoModule:
		return []string{r.buildDocumented(t, d.name, path)}
	case d.name == "cron":
		return r.cronJob(t, text)
	default:
		return append(slices.Clone(c.Command[:len(c.Command)-1]), path)
	}
}

// buildDocumented builds a Go program as one of this module's, where it finds what
// it imports.
func (r *rig) buildDocumented(t *testing.T, name, path string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, name, "main.go"): path}})
	if err == nil {
		err = os.WriteFile(path+".json", overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.build(t, ".", "-overlay", path+".json", "./"+name)
	return filepath.Join(r.bin, name)
}

// cronJob is the command that cron makes of a file of /etc/cron.d with one job: its
// variables and no others, and /bin/sh.
func (r *rig) cronJob(t *testing.T, text string) []string {
	t.Helper()
	home := t.TempDir()
	env := []string{"-i", "SHELL=/bin/sh", "LOGNAME=billing", "HOME=" + home}
	var job []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch name, _, set := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case set && !strings.ContainsAny(name, " \t"):
			env = append(env, line)
		default:
			// Five fields are the time, the sixth is the user.
			job = append(job, regexp.MustCompile(`^(\S+\s+){6}`).ReplaceAllString(line, ""))
		}
	}
	if len(job) != 1 || strings.Contains(job[0], "%") {
		t.Fatalf("got %q, want one job, without a %% that cron would take for a line's end", job)
	}
	// What its machine has: the programs, and the user's password in ~/.pgpass.
	told := map[string]string{}
	for _, entry := range r.environment(t, clients.Untagged, nil) {
		name, value, _ := strings.Cut(entry, "=")
		told[name] = value
	}
	pass := fmt.Sprintf("*:*:*:%s:%s\n", told["PGUSER"], told["PGPASSWORD"])
	if err := os.WriteFile(filepath.Join(home, ".pgpass"), []byte(pass), 0o600); err != nil {
		t.Fatal(err)
	}
	env = append(env, "PGUSER="+told["PGUSER"], "PATH="+r.bin+":"+filepath.Dir(r.stack.Postgres.Program("psql"))+":/usr/bin:/bin")
	return append(append([]string{"env"}, env...), "/bin/sh", "-c", job[0])
}

// holds runs a program as the holder of the lock: it must present it, and work.
func (r *rig) holds(t *testing.T, d documented, command []string) {
	t.Helper()
	r.resetOrders(t)
	if !d.alone {
		lock := []string{filepath.Join(r.bin, "fenceproxy"), "lock", "order:8472", "--etcd", r.stack.Etcd.Endpoint(), "--", "env", "-u", "PGOPTIONS"}
		command = append(lock, command...)
	}
	const counter = "fenceproxy_claims_total"
	before := r.metric(t, counter)
	out, err := r.runDocumented(t, command, r.environment(t, clients.Untagged, nil))
	if err != nil {
		t.Fatalf("got %v: %s", err, out)
	}
	if r.metric(t, counter) == before {
		t.Error("it didn't present its lock")
	}
	if r.paid(t) != 1 {
		t.Error("the holder's write isn't there")
	}
	left, err := r.stack.Client.Get(t.Context(), leases.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if left.Count != 0 {
		t.Errorf("%d locks are not given back", left.Count)
	}
}

// isStale runs a program with the token of a lock that another has claimed.
func (r *rig) isStale(t *testing.T, d documented, command []string) {
	t.Helper()
	r.resetOrders(t)
	lock := r.hold(t, "order:8472")
	env := r.environment(t, clients.Stale, lock)
	lock.lose(t)
	defer lock.release(t)
	out, err := r.runDocumented(t, command, env)
	if err == nil {
		t.Errorf("stale: got exit status 0: %s", out)
	}
	want := regexp.MustCompile("the lock is lost: .*stale_token")
	if d.client == "psql" {
		want = regexp.MustCompile("ERROR: +stale_token")
	}
	if !want.Match(out) {
		t.Errorf("stale: got %q, want %s", out, want)
	}
	if r.paid(t) != 0 {
		t.Error("stale: its write is there")
	}
}

func (r *rig) runDocumented(t *testing.T, command, env []string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), playTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	modules, err := filepath.Abs("programs/node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(env, "PATH="+r.bin+":"+filepath.Dir(r.stack.Postgres.Program("psql"))+":"+os.Getenv("PATH"), "NODE_PATH="+modules)
	return cmd.CombinedOutput()
}

// resetOrders leaves the order that programs pay.
func (r *rig) resetOrders(t *testing.T) {
	t.Helper()
	r.reset(t)
	r.exec(t, "SET ROLE app; CREATE TABLE orders (id int PRIMARY KEY, paid boolean NOT NULL); INSERT INTO orders VALUES (8472, false); RESET ROLE")
}

func (r *rig) paid(t *testing.T) int {
	t.Helper()
	return r.scalar(t, "SELECT count(*) FROM orders WHERE paid")
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
