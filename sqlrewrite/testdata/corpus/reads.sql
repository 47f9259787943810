SELECT 1
select
SELECT
SELECT *
SELECT * FROM orders
SELECT id, total FROM orders WHERE id = $1
SELECT id FROM public.orders WHERE customer_id = 42 ORDER BY created_at DESC LIMIT 10 OFFSET 20
SELECT o.* FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.country = 'NZ'
SELECT o.id FROM orders AS o LEFT JOIN lines AS l ON (l.order_id = o.id) JOIN (SELECT 1 AS x) AS s ON true
SELECT o.id FROM orders o JOIN (SELECT id FROM customers) c ON c.id = o.customer_id
SELECT o.id FROM orders JOIN (lines CROSS JOIN products) ON true
SELECT a FROM t1 LEFT OUTER JOIN (t2 INNER JOIN t3 USING (id)) USING (id)
SELECT a FROM t1 NATURAL JOIN (SELECT 2 AS b) s
SELECT a FROM t1 JOIN t2 USING (id) JOIN (SELECT 1 AS id) s USING (id)
SELECT a FROM "t1" JOIN (SELECT 2 AS b) s ON true
SELECT count(*), sum(total), avg(total), min(total), max(total) FROM orders GROUP BY customer_id HAVING count(*) > 3
SELECT count(DISTINCT customer_id) FROM orders
SELECT customer_id, count(*) FILTER (WHERE total > 10) AS big FROM orders GROUP BY 1
SELECT row_number() OVER (PARTITION BY customer_id ORDER BY created_at) FROM orders
SELECT rank() OVER w, lag(total, 1, 0) OVER w FROM orders WINDOW w AS (PARTITION BY customer_id ORDER BY id)
SELECT sum(total) FILTER (WHERE paid) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FROM orders
SELECT mode() WITHIN GROUP (ORDER BY total DESC) FILTER (WHERE paid) FROM orders
SELECT now(), current_timestamp, current_date, localtime, current_user, session_user
SELECT current_timestamp(3), localtime (2), localtimestamp(1)
SELECT pg_catalog.now()
SELECT Pg_Catalog . Lower('X')
SELECT upper(name) || ' ' || LOWER(name) FROM customers
SELECT coalesce(name, 'nobody'), nullif(a, b), greatest(1, 2), least(1, 2) FROM customers
SELECT CASE WHEN total > 10 THEN 'big' ELSE 'small' END FROM orders
SELECT CASE (total) WHEN (1) THEN (2) ELSE (3) END FROM orders
SELECT CAST(total AS numeric(10,2)), total::varchar(10), total::pg_catalog.varchar(4), '1'::bit(3) FROM orders
SELECT CAST(a AS public.geometry(Point, 4326)), b::public.geometry(Point, 4326), c::timestamptz(3) FROM t
SELECT 'x'::character varying(10), 1.5::double precision, '12:00'::time(3) with time zone
SELECT interval '1 day', interval '1' day, interval(3) '1.2345 seconds', date '2020-01-01', timestamp(3) '2020-01-01 00:00'
SELECT extract(epoch FROM created_at), extract(year from now()) FROM orders
SELECT substring(name FROM 1 FOR 3), substring(name, 2), substr(name, 2, 3), overlay(name placing 'x' from 2 for 1) FROM customers
SELECT position('a' IN name), trim(both ' ' from name), trim(name), trim(leading from name) FROM customers
SELECT trim(trailing ('x') from lower(name)) FROM customers
SELECT normalize('x', NFC), 'x' IS NFC NORMALIZED
SELECT a BETWEEN (1) AND (2), a NOT BETWEEN SYMMETRIC (2) AND (1) FROM t
SELECT * FROM t WHERE a IN (1, 2, 3) AND b NOT IN (SELECT c FROM u)
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id) OR NOT EXISTS (SELECT 2)
SELECT * FROM t WHERE a = ANY (ARRAY[1, 2, 3]) OR a = ALL ($1) OR a = SOME ($2::int[])
SELECT * FROM t WHERE (a, b) = (1, 2) AND ROW(a, b) < ROW(3, 4)
SELECT * FROM t WHERE (a, b) OVERLAPS (c, d)
SELECT * FROM t WHERE name LIKE 'a%' AND name NOT LIKE '%b' AND name ILIKE 'c_' AND name SIMILAR TO '(x|y)%'
SELECT * FROM t WHERE name LIKE ('a' || '%') AND 'x' LIKE (name) AND $1 LIKE ($2)
SELECT * FROM t WHERE a IS NULL AND b IS NOT NULL AND c IS DISTINCT FROM d AND e IS TRUE AND f ISNULL
SELECT ARRAY(SELECT id FROM t), ARRAY[[1,2],[3,4]], (ARRAY[1,2,3])[1:2], a[1] FROM t
SELECT array_agg(id ORDER BY id DESC), string_agg(name, ', '), json_agg(t), jsonb_object_agg(k, v) FROM t
SELECT unnest(ARRAY[1,2]), generate_series(1, 10), generate_series(1, 10, 2)
SELECT * FROM generate_series(1, 3) AS g(n)
SELECT * FROM generate_series(1, 3) g(n)
SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g(n, i)
SELECT * FROM unnest(ARRAY[1,2]) WITH ORDINALITY g(n, i)
SELECT * FROM ROWS FROM (generate_series(1, 3), generate_series(1, 2)) AS r(a, b)
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, c)
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(n, c)
SELECT * FROM LATERAL (SELECT 1) AS l, LATERAL generate_series(1, 2) AS g
SELECT * FROM json_to_recordset('[{"a":1}]') AS x(a int, b text)
SELECT * FROM jsonb_to_record('{"a":1}') AS x(a varchar(10), b numeric(4,2))
SELECT * FROM t TABLESAMPLE bernoulli (10)
SELECT * FROM t TABLESAMPLE SYSTEM(0.5) REPEATABLE (200)
SELECT * FROM ONLY (parent)
SELECT * FROM ONLY parent
SELECT DISTINCT customer_id FROM orders
SELECT DISTINCT ON (customer_id) customer_id, total FROM orders ORDER BY customer_id, created_at DESC
SELECT DISTINCT ON (customer_id, lower(name)) upper(name) FROM orders
SELECT ALL a FROM t
SELECT a FROM t UNION SELECT b FROM u
SELECT a FROM t UNION ALL (SELECT b FROM u ORDER BY b LIMIT 1) EXCEPT (SELECT 3) INTERSECT SELECT 4
(SELECT 1)
((SELECT 1) UNION (SELECT 2))
(SELECT a FROM t ORDER BY a LIMIT 1) UNION ALL (SELECT 2) ORDER BY 1
(VALUES (1), (2))
SELECT a FROM t GROUP BY (a), (b)
SELECT a, b, count(*) FROM t GROUP BY GROUPING SETS ((a), (b), ())
SELECT a, b, count(*), grouping(a, b) FROM t GROUP BY ROLLUP (a, b)
SELECT a, b, count(*) FROM t GROUP BY CUBE (a, b)
SELECT a FROM t ORDER BY (a), b NULLS FIRST, c DESC NULLS LAST
SELECT a FROM t ORDER BY a USING <
SELECT a FROM t FETCH FIRST 5 ROWS ONLY
SELECT a FROM t ORDER BY a OFFSET 3 ROWS FETCH NEXT ROW WITH TIES
SELECT a FROM t LIMIT ALL
SELECT a FROM t LIMIT (1 + 1) OFFSET (2)
WITH x AS (SELECT 1) SELECT * FROM x
WITH x (a, b) AS (SELECT 1, 2) SELECT * FROM x
WITH x AS MATERIALIZED (SELECT 1), y AS NOT MATERIALIZED (SELECT 2) SELECT * FROM x, y
WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT sum(n) FROM t
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SEARCH DEPTH FIRST BY n SET o SELECT * FROM t
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) CYCLE n SET c USING p SELECT * FROM t
WITH x AS (SELECT 1) TABLE x
WITH x AS (SELECT 1) VALUES (1)
WITH "X"(a) AS (SELECT 1) SELECT * FROM "X"
VALUES (1, 'a'), (2, 'b')
VALUES (lower('A')), ($1)
TABLE orders
TABLE ONLY orders
SELECT a AS "insert", b AS "delete" FROM t
SELECT "update", "into" FROM "merge"
SELECT 'insert into t', 'update', $$delete from t$$, E'merge \' into'
SELECT /* insert */ 1 -- delete from t
-- a comment first⏎SELECT 1
/* a comment first */ SELECT 1 /* and last */
SELECT 1 AS share, key, no FROM t
SELECT collation for (name) FROM t
SELECT name COLLATE "C", name COLLATE pg_catalog."de_DE" FROM t ORDER BY name COLLATE "C"
SELECT a OPERATOR(pg_catalog.+) b FROM t
SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$' COLLATE pg_catalog.default AND pg_catalog.pg_table_is_visible(c.oid)
SELECT a OPERATOR(pg_catalog.+) lower(b) FROM t
SELECT a -> 'x' ->> 'y', a #> '{b}', a @> '{"c":1}', a ? 'd', a ?| array['e'], a @? '$.f' FROM t
SELECT a<@b, a&&b, a||b, a<>b, a!=b, a~b, a!~*b, @-5, !!a, |/4, a<=b, a>=b, a<-1 FROM t
SELECT -1, +1, - 1, 1 - -1, 1 -(-1), 2*-3, 4/-2
SELECT created_at AT TIME ZONE 'UTC', timezone('UTC', now()) FROM t
SELECT date_trunc('day', created_at), date_part('hour', created_at), age(created_at), to_char(created_at, 'YYYY') FROM t
SELECT to_tsvector('english', body) @@ plainto_tsquery('x'), ts_rank(v, q) FROM docs
SELECT xmlelement(name foo, xmlattributes(a AS b), 'c'), xmlforest(a, b), xmlconcat(x, y) FROM t
SELECT xmlparse(document '<a/>'), xmlparse(content 'x'), xmlserialize(content x AS text), xmlpi(name y, 'z'), xmlroot(x, version '1.0')
SELECT * FROM xmltable('/a' PASSING '<a/>' COLUMNS b int PATH '@b', c text DEFAULT 'd')
SELECT xmlexists('/a' PASSING x), xpath('/a', x) FROM t
SELECT pg_backend_pid(), version(), current_database(), current_setting('work_mem'), current_schema()
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn(), pg_postmaster_start_time()
SELECT pg_size_pretty(pg_total_relation_size('t')), pg_relation_size('t')
SELECT format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum) FROM pg_attribute a, pg_attrdef d
SELECT has_table_privilege('t', 'SELECT'), pg_has_role('r', 'USAGE')
SELECT t.oid, t.typname FROM pg_type t LEFT JOIN pg_range r ON t.oid = r.rngtypid WHERE t.typname IN ('int2', 'int4') OR t.typtype = 'r'
SELECT gen_random_uuid(), random(), clock_timestamp(), md5('x'), sha256('x'), encode('\x00', 'hex')
SELECT pg_sleep(0)
SELECT currval('s')
SELECT x'1F', b'101', X'ff' || B'0', U&'d\0061t\+000061', U&'d!0061' UESCAPE '!'
SELECT U&"d\0061ta" FROM t
SELECT N'national', 'a''b', E'tab\t', 'line one'⏎' and two'
SELECT $1, $2::text, $3 + 1
SELECT $a$ it's; $$ not the end $b$ ; $a$ AS body
SELECT $ä$ü$ä$
SELECT 1.5, .5, 5., 1e10, 1.5e-3, 1E+2
SELECT t.*, (t).a, (t.b).c, (row(1,2)).f1, t.b[1].c FROM t
SELECT DISTINCT a, DISTINCT_b FROM t
SELECT count(*) AS left, 1 AS right FROM t
SELECT left(name, 3), right(name, 2) FROM t
SELECT json_object('{a,b}'), row_to_json(row(1)), to_jsonb(1), jsonb_build_object('a', 1, 'b', now())
SELECT int4range(1, 5) @> 3, daterange('2020-01-01', '2020-02-01', '[]'), lower(int4range(1,2))
SELECT 'a'⏎'b' FROM t WHERE false⏎
SELECT a::bit varying(3), b::national character varying(3) FROM t
SELECT count(*) INTERSECT SELECT 2
SELECT a FROM t WHERE a > (SELECT avg(a) FROM t) AND (SELECT true)
SELECT (SELECT max(id) FROM (SELECT id FROM t WHERE b = (SELECT 1)) s)
SELECT exists(select 1)
SELECT not(true), (not (a) or (b)) and (c) FROM t
SELECT a IS NOT DISTINCT FROM (b) FROM t
SELECT concat_ws(',', variadic array['a','b'])
SELECT make_interval(days => 3), make_interval(hours := 2)
SELECT "é", é, "a""b" FROM "ta""ble"
SELECT a$b, _c, d1$ FROM t$x
EXPLAIN SELECT 1
EXPLAIN INSERT INTO t VALUES (1)
EXPLAIN DELETE FROM t
EXPLAIN VERBOSE UPDATE t SET a = 1
EXPLAIN (COSTS off) SELECT f(1)
EXPLAIN (FORMAT JSON, VERBOSE, COSTS false) DELETE FROM t
EXPLAIN (SELECT 1)
EXPLAIN ((SELECT 1) UNION (SELECT f(2)))
EXPLAIN VERBOSE (SELECT 1)
EXPLAIN EXECUTE p(1)
EXPLAIN (VERBOSE) (SELECT 1)
EXPLAIN CREATE TABLE x AS SELECT 1
EXPLAIN ANALYZE SELECT count(*) FROM t
EXPLAIN ANALYSE VERBOSE SELECT lower(a) FROM t
EXPLAIN (ANALYZE) SELECT 1
EXPLAIN (ANALYZE, BUFFERS) (SELECT 1)
EXPLAIN (ANALYZE true, FORMAT json) WITH x AS (SELECT 1) TABLE x
EXPLAIN ANALYZE VALUES (1)
DECLARE c CURSOR FOR SELECT * FROM t
DECLARE c BINARY INSENSITIVE NO SCROLL CURSOR WITHOUT HOLD FOR SELECT * FROM t ORDER BY a
DECLARE "C" SCROLL CURSOR FOR VALUES (1)
CLOSE c
CLOSE ALL
COPY t TO STDOUT
COPY t (a, b) TO STDOUT
COPY public.t(a) TO STDOUT WITH (FORMAT csv, HEADER true)
COPY "T" TO stdout WITH CSV HEADER
COPY t TO STDOUT (FORMAT binary)
COPY (SELECT a, lower(b) FROM t WHERE c IN (1, 2)) TO STDOUT
COPY (VALUES (1)) TO STDOUT WITH (FORMAT csv)
COPY (TABLE t) TO STDIN
COPY BINARY t TO STDOUT
