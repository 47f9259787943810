#!/bin/sh
# pg_dump and pg_restore, played straight and through fenceproxy; see ../doc.go.
. ./libpq.sh

# sum is the checksum of a dump in plain text; newer servers' dumps have a line
# that is random.
sum() { grep -v '^\\\(un\)\?restrict ' | sha256sum | cut -c1-12; }

# restored restores into a database of its own, by the given command, and tells
# what a dump of that is.
restored() {
	PGDATABASE=restored maybe_tagged psql -Xqc 'DROP OWNED BY app' 2>/dev/null
	PGDATABASE=restored maybe_tagged "$@" >/dev/null
	PGDATABASE=restored maybe_tagged dump | sum
}

play() {
	version_of pg_dump
	maybe_tagged psql -Xqo /dev/null <<-'SQL'
		INSERT INTO item SELECT n, 'row ' || n FROM generate_series(1, 5000) n;
		CREATE TABLE part (id int REFERENCES item, price numeric(10, 2), made timestamptz, bytes bytea, tags text[]) PARTITION BY RANGE (id);
		CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (2500);
		CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (2500) TO (MAXVALUE);
		INSERT INTO part SELECT n, n / 7.0, to_timestamp(n), sha256(n::text::bytea), ARRAY[n::text, NULL, 'a,"b\'] FROM generate_series(1, 5000, 7) n;
		CREATE INDEX ON part (made);
		CREATE VIEW dear AS SELECT * FROM part WHERE price > 100;
		CREATE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 2 * $1; END $$;
		CREATE SEQUENCE numbers START 42;
		SELECT lo_from_bytea(4242, '\x00ff00ff');
		COMMENT ON TABLE part IS 'it''s one; with -- signs';
	SQL
	dir=$(mktemp -d)
	maybe_tagged dump >"$dir/plain"
	echo "plain: $(sum <"$dir/plain") $(restored psql -Xq -v ON_ERROR_STOP=1 -f "$dir/plain")"
	maybe_tagged dump -Fc -f "$dir/custom"
	echo "custom: $(restored pg_restore -1 -d restored "$dir/custom")"
	maybe_tagged dump -Fd -j 2 -f "$dir/directory"
	echo "directory: $(restored pg_restore -j 2 -d restored "$dir/directory")"
	maybe_tagged dump --inserts --rows-per-insert=100 -f "$dir/inserts"
	echo "restored: $(restored psql -Xq -v ON_ERROR_STOP=1 -f "$dir/inserts")"
	rm -rf "$dir"
}

# both dumps and restores.
both() { # TOKEN
	echo "$(word_of tagged "$FENCE_KEY" "$1" dump) $(word_of tagged "$FENCE_KEY" "$1" pg_restore --data-only -d app "$dir/stale")"
}

fence() {
	dir=$(mktemp -d)
	psql -Xqc "INSERT INTO item SELECT n, 'stale' FROM generate_series(1, 100000) n"
	dump -Fc -Z0 --data-only -t item -f "$dir/stale"
	psql -Xqc "UPDATE item SET name = 'holder'; DELETE FROM item WHERE id > 1000"
	dump -Fc --data-only -t item -f "$dir/holder"
	psql -Xqc 'TRUNCATE item'
	holder=$(word_of tagged "$FENCE_KEY" "$FENCE_TOKEN" pg_restore --data-only -d app "$dir/holder")
	psql -Xqc 'UPDATE item SET id = -id'
	# The lock is lost while rows are on their way.
	mkfifo "$dir/half"
	word_of tagged "$FENCE_KEY" "$FENCE_TOKEN" pg_restore --data-only -d app <"$dir/half" >"$dir/evicted" &
	{
		head -c 500000 "$dir/stale"
		until psql -XAtc "SELECT query FROM pg_stat_activity WHERE wait_event = 'ClientRead' AND state = 'active'" | grep -q 'COPY public.item'; do sleep 0.01; done
		echo "holder: $holder" >&4
		read -r _
		tail -c +500001 "$dir/stale"
	} >"$dir/half" 2>/dev/null || true
	wait
	echo "evicted: $(cat "$dir/evicted")"
	echo "stale: $(both "$FENCE_TOKEN")"
	echo "unknown: $(both $((FENCE_TOKEN + 1000000)))"
	rm -rf "$dir"
}

exec 4>&1
"$1"
