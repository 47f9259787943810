package proxy_test

import (
	"slices"
	"strings"
)

// What random sessions work on. A row of w says under which tag it was written.
const randomSchema = `
	CREATE TABLE g (id int PRIMARY KEY, v text); CREATE TABLE d (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE w (id bigserial PRIMARY KEY, tag text DEFAULT concat_ws('/', current_setting('fence.key', true), current_setting('fence.token', true), current_setting('fence.tokens', true)));
	CREATE FUNCTION writes_w() RETURNS bigint LANGUAGE sql AS 'INSERT INTO w DEFAULT VALUES RETURNING id';
	CREATE VIEW hidden AS SELECT writes_w() AS x;
	CREATE FUNCTION pure() RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN writes_w(); END $$;
	CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO w DEFAULT VALUES; COMMIT; INSERT INTO w DEFAULT VALUES; END $$;
	CREATE TABLE later (id int, v text);
	CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM writes_w(); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION later();
	CREATE TABLE refuses (id int, v text);
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
	CREATE TRIGGER refuses BEFORE INSERT ON refuses FOR EACH STATEMENT EXECUTE FUNCTION refuse();
	CREATE FUNCTION rename_a() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE a'; EXECUTE 'PREPARE a AS INSERT INTO w DEFAULT VALUES'; END $$`

// randomTexts are statements that sessions are made of, one a line. KEY is the
// lock that a session is to lose, OTHER one that it keeps.
var randomTexts = lines(`
	SELECT 1
	SELECT count(*) FROM g
	SELECT id FROM g ORDER BY id LIMIT 3
	SELECT 1/0
	SELECT * FROM nope
	selec
	VALUES (1), (2), (3), (4), (5)
	SELECT generate_series(1, 5)
	-- nothing
	SELECT 1 -- behind
	/* before */ SELECT 1
	INSERT INTO w DEFAULT VALUES
	INSERT INTO w DEFAULT VALUES
	INSERT INTO w DEFAULT VALUES RETURNING 7
	INSERT INTO w DEFAULT VALUES -- é
	INSERT INTO d VALUES (1)
	INSERT INTO later VALUES (1)
	SELECT * FROM hidden
	SELECT * FROM hidden
	SELECT * FROM hidden
	SELECT pure()
	BEGIN
	BEGIN
	BEGIN
	COMMIT
	COMMIT
	COMMIT
	END
	ROLLBACK
	ABORT
	COMMIT AND CHAIN
	ROLLBACK AND CHAIN
	SAVEPOINT s
	SAVEPOINT s
	ROLLBACK TO s
	ROLLBACK TO SAVEPOINT s
	RELEASE s
	START TRANSACTION ISOLATION LEVEL REPEATABLE READ
	BEGIN READ ONLY
	SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
	SET TRANSACTION READ ONLY
	SET application_name = 'x'
	SET LOCAL work_mem = '1MB'
	RESET work_mem
	SHOW work_mem
	DEALLOCATE ALL
	DISCARD ALL
	DISCARD PLANS
	PREPARE ps AS INSERT INTO w DEFAULT VALUES
	EXECUTE ps
	DEALLOCATE ps
	PREPARE pr AS SELECT * FROM hidden
	EXECUTE pr
	DEALLOCATE a
	PREPARE a AS INSERT INTO w DEFAULT VALUES
	SELECT rename_a()
	DECLARE c CURSOR FOR SELECT generate_series(1, 5)
	DECLARE c CURSOR FOR SELECT * FROM hidden
	DECLARE h CURSOR WITH HOLD FOR SELECT * FROM hidden
	FETCH 2 FROM c
	FETCH h
	MOVE c
	CLOSE c
	CLOSE h
	CLOSE ALL
	LOCK TABLE g
	COPY g TO STDOUT
	COPY g FROM STDIN
	COPY g FROM STDIN
	COPY later FROM STDIN
	COPY nope FROM STDIN
	COPY refuses FROM STDIN
	COPY (SELECT * FROM hidden) TO STDOUT
	SELECT set_config('work_mem', '2MB', true)
	SET CONSTRAINTS ALL IMMEDIATE
	EXPLAIN (COSTS off) SELECT 1
	EXPLAIN ANALYZE SELECT * FROM hidden
	SELECT pg_advisory_xact_lock_shared(5)
	SET standard_conforming_strings = off
	SET standard_conforming_strings = on
	SELECT 'a\'
	SELECT E'a\'b'
	SELECT '1;2', $$;$$, 1
	CREATE TEMP TABLE IF NOT EXISTS tmp (i int)
	INSERT INTO tmp VALUES (1)
	NOTIFY ch
	UNLISTEN *
	DO $$ BEGIN INSERT INTO w DEFAULT VALUES; END $$
	CALL commits()
	PREPARE TRANSACTION 'x'
	SET fence.key = 'KEY'
	SET fence.key = 'KEY'
	SET fence.token = 1
	SET fence.token = 1
	SET LOCAL fence.key = 'KEY'
	SET LOCAL fence.token = 1
	SET fence.key = ''
	SET fence.token = ''
	RESET fence.key
	RESET fence.token
	RESET fence.tokens
	RESET ALL
	SET fence.tokens = '{"KEY": 1}'
	SET LOCAL fence.tokens = '{"KEY": 1, "OTHER": 5}'
	SELECT set_config('fence.key', 'KEY', false), set_config('fence.token', '1', false)
	SELECT set_config('fence.key', 'KEY', true), set_config('fence.token', '1', true)
	SELECT set_config('fence.key', 'OTHER', true), set_config('fence.token', '5', true)
	SELECT set_config('fence.key', '', false), set_config('fence.token', '', false)`)

// randomQueries are texts for a Query only, of several statements each.
var randomQueries = lines(`
	INSERT INTO w DEFAULT VALUES; SELECT 1
	BEGIN; INSERT INTO w DEFAULT VALUES; COMMIT
	INSERT INTO w DEFAULT VALUES; COMMIT; INSERT INTO w DEFAULT VALUES
	SELECT 1; SELECT 1/0
	BEGIN; SELECT 1/0; COMMIT
	COPY g TO STDOUT; SELECT 1
	ROLLBACK; INSERT INTO w DEFAULT VALUES
	BEGIN; SELECT * FROM hidden
	SELECT * FROM hidden; COMMIT
	COMMIT; SELECT * FROM hidden
	COMMIT; BEGIN; INSERT INTO w DEFAULT VALUES
	SELECT 1; BEGIN; SELECT 2
	SAVEPOINT s; INSERT INTO w DEFAULT VALUES; ROLLBACK TO s
	INSERT INTO w DEFAULT VALUES; ROLLBACK; INSERT INTO w DEFAULT VALUES
	BEGIN; COMMIT AND CHAIN; SELECT * FROM hidden; COMMIT
	COPY g FROM STDIN; COPY g FROM STDIN
	COPY later FROM STDIN; SELECT 1
	DEALLOCATE ALL; INSERT INTO w DEFAULT VALUES
	DEALLOCATE a; PREPARE a AS INSERT INTO w DEFAULT VALUES
	DECLARE c CURSOR FOR SELECT * FROM hidden; FETCH c
	BEGIN; INSERT INTO d VALUES (1); COMMIT; SELECT 3
	BEGIN; INSERT INTO later VALUES (1); COMMIT
	SELECT 'é'; SELECT nope
	LOCK g; SELECT * FROM hidden
	SELECT 1;;; SELECT 2;
	ROLLBACK AND CHAIN; INSERT INTO w DEFAULT VALUES; COMMIT
	BEGIN; SAVEPOINT s; SELECT * FROM hidden; RELEASE s; COMMIT
	SET fence.key = 'KEY'; SET fence.token = 1; INSERT INTO w DEFAULT VALUES
	BEGIN; SET LOCAL fence.key = 'KEY'; SET LOCAL fence.token = 1; INSERT INTO w DEFAULT VALUES; COMMIT
	BEGIN; SET LOCAL fence.key = 'KEY'; SET LOCAL fence.token = 1; SELECT * FROM hidden
	SET LOCAL fence.key = 'KEY'; SET LOCAL fence.token = 1; SELECT * FROM hidden
	SELECT * FROM hidden; RESET fence.key; RESET fence.token
	CALL commits()
	CALL commits()`)

// lines returns the lines of a text, as they stand but for the indentation.
func lines(text string) []string {
	all := strings.Split(strings.ReplaceAll(text, "\t", ""), "\n")
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}
