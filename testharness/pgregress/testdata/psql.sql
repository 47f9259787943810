-- What psql does beside plain statements, each of them a conversation of its
-- own kind: descriptions, portals, COPY in and out, several results, errors
-- inside a block, notifications, large objects, a session that is left.
\set VERBOSITY verbose
CREATE TABLE made (id int PRIMARY KEY, word text);
INSERT INTO made SELECT g, 'word ' || g FROM generate_series(1, 25) g;

SELECT count(*) AS rows, max(id) AS last FROM made \gset
\echo :rows :last
SELECT id, word FROM made WHERE id = $1 \gdesc
SELECT 1 AS one, now() AS clock, '{}'::json AS doc \gdesc
SELECT format('SELECT %s AS n', g) FROM generate_series(1, 3) g \gexec
SELECT id % 3 AS a, id % 2 AS b, count(*) FROM made GROUP BY 1, 2 ORDER BY 1, 2 \crosstabview
SELECT 1 \; SELECT 2 \; INSERT INTO made VALUES (26, 'six') \; SELECT count(*) FROM made;
\set SHOW_ALL_RESULTS off
SELECT 1 \; SELECT 2;
\set SHOW_ALL_RESULTS on

\copy made TO 'made.copy'
\copy (SELECT id FROM made ORDER BY id LIMIT 3) TO STDOUT
CREATE TABLE again (LIKE made);
\copy again FROM 'made.copy'
SELECT count(*) FROM again;
COPY again FROM STDIN;
100	a hundred
101	and one
\.
COPY again FROM STDIN;
no number	x
102	never there
\.
\errverbose
COPY nobody FROM STDIN;
SELECT 'after a COPY that did not begin';
COPY again TO STDOUT \; COPY (SELECT 1) TO STDOUT;
\copy again FROM 'made.copy' (FORMAT binary)
COPY made TO STDOUT (FORMAT csv, HEADER);

\set FETCH_COUNT 10
SELECT id FROM made ORDER BY id;
SELECT id, 1 / (12 - id) FROM made ORDER BY id;
\unset FETCH_COUNT

\set ON_ERROR_ROLLBACK on
BEGIN;
INSERT INTO made VALUES (27, 'seven');
INSERT INTO made VALUES (27, 'again');
INSERT INTO made VALUES (28, 'eight');
COMMIT;
SELECT max(id) FROM made;
\set ON_ERROR_ROLLBACK off
\set AUTOCOMMIT off
INSERT INTO made VALUES (29, 'nine');
SELECT 1 / 0;
SELECT 'ignored';
ROLLBACK;
SELECT max(id) FROM made;
COMMIT;
\set AUTOCOMMIT on
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM made ORDER BY id;
FETCH 2 FROM c;
MOVE 5 IN c;
FETCH BACKWARD 1 FROM c;
COMMIT;

LISTEN news;
NOTIFY news, 'hello';
SELECT 'a notification stands before this';
CREATE SEQUENCE ticks;
SELECT 1 / (4 - nextval('ticks')) AS tick \watch 0.01

\lo_import made.copy
\lo_list
\lo_export :LASTOID lo.copy
\lo_unlink :LASTOID
\d made
\df pg_catalog.lower
\dn
\l
CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql AS 'SELECT 2 * i';
\sf twice
PREPARE p (int) AS SELECT word FROM made WHERE id = $1;
EXECUTE p (3);
DEALLOCATE ALL;
SET client_encoding = 'LATIN1';
SELECT length('é');
\encoding
\c
\conninfo
\encoding
SHOW client_encoding;
DISCARD ALL;
VACUUM made;
SELECT pg_terminate_backend(pg_backend_pid());
SELECT 'connected again';
