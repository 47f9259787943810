#!/bin/sh
# psql, played straight and through fenceproxy; see ../doc.go.
. ./libpq.sh

# script runs the SQL on standard input.
script() { psql -XqAt -v key="${FENCE_KEY:-}" "$@" -f /dev/fd/3 3<&0 0<&4; }

# code_of is the SQLSTATE of the first error of the SQL on standard input.
code_of() {
	code=$(script -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate "$@" 2>&1 >/dev/null | sed -n 's/.*ERROR:  //p')
	echo "${code:-ok}"
}

play() {
	version_of psql
	maybe_tagged script <<-'SQL'
		SELECT 'connect: ' || current_user;
		PREPARE get (int, text) AS SELECT 'prepared: ' || string_agg(($1 + n + length($2))::text, ' ') FROM generate_series(0, 2) n;
		EXECUTE get (0, 'abc');
		BEGIN; INSERT INTO item VALUES (1, 'commit'); COMMIT;
		SELECT 'commit: ' || count(*) FROM item WHERE name = 'commit';
		BEGIN; INSERT INTO item VALUES (2, 'rollback'); ROLLBACK;
		SELECT 'rollback: ' || count(*) FROM item WHERE name = 'rollback';
		BEGIN; INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a; INSERT INTO item VALUES (4, 'savepoint');
		ROLLBACK TO a; COMMIT;
		SELECT 'savepoint: ' || count(*) FROM item WHERE name = 'savepoint';
		INSERT INTO item VALUES (1, 'again');
		\set one :SQLSTATE
		SELEC 1;
		\set two :SQLSTATE
		SELECT 'x'::int;
		\set three :SQLSTATE
		INSERT INTO item VALUES (5, NULL);
		\echo errors: :one :two :three :SQLSTATE
		\copy item FROM PROGRAM 'seq 1001 2000 | sed "s/$/\tcopy/"'
		\setenv COPIED :ROW_COUNT
		\copy (SELECT * FROM item WHERE name = 'copy') TO PROGRAM 'echo copy: $COPIED $(wc -l)'
		\set large `printf %04194304d 0`
		SELECT 'large: ' || length(:'large');
		\set FETCH_COUNT 100
		\o | wc -l | sed 's/^ */cursor: /'
		SELECT id FROM item WHERE name = 'copy';
		\o
		-- several statements in one message, which a block or an error may cut
		\set FETCH_COUNT 0
		INSERT INTO item VALUES (31, 'block')\; BEGIN\; INSERT INTO item VALUES (32, 'block')\; COMMIT\; INSERT INTO item VALUES (31, 'block');
		SELECT 'block: ' || count(*) FROM item WHERE name = 'block';
	SQL
	printf 'cancel: %s\n' "$(cancel)"
	echo "LISTEN news; NOTIFY news, 'hello';" | maybe_tagged script | sed -n 's/.*payload "\(.*\)" received.*/notify: \1/p'
}

# cancel has psql interrupted as soon as its query is seen to run.
cancel() {
	maybe_tagged script -v VERBOSITY=sqlstate <<-'SQL' 2>&1 | sed -n 's/.*ERROR:  //p'
		\! (until psql -XAtc "SELECT 'runs' FROM pg_stat_activity WHERE wait_event = 'PgSleep'" | grep -q runs; do sleep 0.01; done; kill -INT $PPID) &
		SELECT pg_sleep(60);
	SQL
}

# ways writes with each way to tag: at connect, for the session, for a transaction.
ways() {
	insert="INSERT INTO item VALUES (:row, '$3');"
	echo "$(echo "$insert" | tagged "$FENCE_KEY" "$1" code_of -v row="$2")" \
		"$(echo "$in_session $insert" | code_of -v token="$1" -v row="$(($2 + 1))")" \
		"$(echo "$in_transaction $insert COMMIT;" | code_of -v token="$1" -v row="$(($2 + 2))")"
}

fence() {
	export SELF="$0"
	tagged "$FENCE_KEY" "$FENCE_TOKEN" script <<-'SQL'
		INSERT INTO item VALUES (1, 'holder');
		\setenv HELD :SQLSTATE
		\! echo holder: $(echo $HELD | sed s/00000/ok/) $(sh $SELF ways $FENCE_TOKEN 2 holder)
		\! read _
		INSERT INTO item VALUES (11, 'stale');
		\echo evicted: :SQLSTATE
	SQL
	echo "stale: $(ways "$FENCE_TOKEN" 12 stale)"
	echo "unknown: $(ways $((FENCE_TOKEN + 1000000)) 15 stale)"
}

exec 4<&0
"$@"
