package clients

import "strings"

// All are the clients, in the order of the table.
func All() []Client {
	return []Client{
		postgres("psql", refused(3),
			"connect", "prepared", "commit", "rollback", "savepoint", "errors", "copy", "large", "cursor", "block", "cancel", "notify"),
		postgres("pgbench", named(1), "simple", "extended", "prepared-mode", "pipeline-mode"),
		postgres("pg_dump", named(2), "plain", "custom", "directory", "restored"), // and pg_restore
		golang("pgx", "pgx", 3, "copy", "notify", "pipeline", "modes"),
		golang("lib/pq", "libpq", 3, "copyin", "notify"),
		gorm(),
		driver("psycopg2", "python", "psycopg2_client.py", "copy", "cursor", "notify"),
		driver("psycopg", "python", "psycopg3_client.py", "copy", "cursor", "notify", "pipeline"),
		driver("asyncpg", "python", "asyncpg_client.py", "copy", "cursor", "notify", "executemany"),
		sqlAlchemy("psycopg2"),
		sqlAlchemy("asyncpg"),
		driver("node-postgres", "js", "node/pg_client.js", "copy", "cursor", "notify"),
		driver("postgres.js", "js", "node/postgres_client.js", "copy", "cursor", "notify", "pipeline"),
		driver("pgjdbc", "java", "JdbcClient.java", "copy", "executemany", "cursor", "notify"),
		driver("DBD::Pg", "perl", "dbd_pg_client.pl", "copy", "cursor", "notify"),
		driver("ruby-pg", "ruby", "ruby_pg_client.rb", "copy", "rows", "notify", "pipeline"),
		driver("PDO_pgsql", "php", "pdo_pgsql_client.php", "copy", "cursor", "notify"),
	}
}

// steps are what is seen where all is well. Not every client has every step.
func steps() map[string]string {
	return map[string]string{
		"version":     "",
		"connect":     "app",
		"types":       "6",     // values that came back as they were sent
		"prepared":    "3 4 5", // one statement, three times
		"commit":      "1",
		"rollback":    "0",
		"savepoint":   "1",
		"errors":      "23505 42601 22P02 23502",
		"copy":        "1000 1000", // rows in, rows out
		"copyin":      "1000",
		"large":       "4194304",
		"cursor":      "1000",
		"rows":        "1000", // read one by one as they come
		"executemany": "100",
		"objects":     "98 1",        // rows made, changed
		"pipeline":    "1 22012 3 1", // an answer, an error, an answer after it, rows
		"modes":       strings.TrimSpace(strings.Repeat("ok 23505 ", 5)),
		"block":       "2", // rows of a Query with a block in it, whose last statement fails
		"cancel":      "57014",
		"notify":      "hello",

		"simple": "", "extended": "", "prepared-mode": "", "pipeline-mode": "",
		"plain": "", "custom": "", "directory": "", "restored": "",
	}
}

// wants picks steps.
func wants(names ...string) map[string]string {
	picked := map[string]string{"version": ""}
	for _, name := range names {
		picked[name] = steps()[name]
	}
	return picked
}

// refused is what must be seen at the steps of fence, by a driver with a number
// of ways to tag a session: at connect, then for the session and for one
// transaction, or for the latter alone.
func refused(ways int) map[string]string {
	each := func(seen string) string { return strings.Repeat(" "+seen, ways)[1:] }
	return map[string]string{
		"holder":  "ok " + each("ok"), // the session that goes on, then each way
		"evicted": "LF005",
		"stale":   each("LF001"),
		"unknown": each("LF002"),
	}
}

// named is what must be seen by programs that show messages, which start with
// the name of their code; of so many of them.
func named(programs int) map[string]string {
	each := func(seen string) string { return strings.Repeat(" "+seen, programs)[1:] }
	return map[string]string{"holder": "ok", "evicted": "evicted", "stale": each("stale_token"), "unknown": each("not_holder")}
}

// postgres is a program of PostgreSQL's own, with steps of its own.
func postgres(name string, refused map[string]string, steps ...string) Client {
	return Client{
		Name: name, Language: "sh", Source: name + "_client.sh", Recipe: "libpq.sh",
		Command: []string{"sh", name + "_client.sh"}, Base: true, Wants: wants(steps...), Refused: refused,
	}
}

// driver is a driver with the steps that all have and some more.
func driver(name, language, source string, more ...string) Client {
	file := source[strings.LastIndex(source, "/")+1:]
	run := map[string][]string{
		// Debian's packages are for Debian's Python.
		"python": {"/usr/bin/python3"},
		"js":     {"node"},
		"java":   {"java", "-cp", "/usr/share/java/postgresql.jar"},
	}[language]
	if run == nil {
		run = []string{language}
	}
	return Client{
		Name: name, Language: language, Source: source, Recipe: source, Command: append(run, file), Refused: refused(3),
		Wants: wants(append(more, "connect", "types", "prepared", "commit", "rollback", "savepoint", "errors", "large", "cancel")...),
	}
}

func golang(name, program string, ways int, more ...string) Client {
	c := driver(name, "go", "golang/"+program+"/main.go", more...)
	c.Command, c.GoModule, c.Base, c.Refused = []string{program}, true, true, refused(ways)
	return c
}

// gorm's pool pings a session that was idle. It puts another in the place of one
// that was evicted, and that one is stale.
func gorm() Client {
	c := golang("gorm", "gorm", 2, "objects")
	c.Refused["evicted"] = "LF001"
	return c
}

func sqlAlchemy(under string) Client {
	c := driver("SQLAlchemy on "+under, "python", "sqlalchemy_client.py", "executemany")
	c.Command = append(c.Command, under)
	return c
}
