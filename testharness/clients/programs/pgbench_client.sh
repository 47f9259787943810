#!/bin/sh
# pgbench, played straight and through fenceproxy; see ../doc.go.
. ./libpq.sh

# bench runs pgbench and prints how many transactions were made and failed.
bench() {
	maybe_tagged pgbench -n -c 4 -j 2 -t 50 "$@" 2>&1 |
		sed -n 's/^number of transactions actually processed: //p; s/^number of failed transactions: \([0-9]*\) .*/\1 failed/p; /ERROR/p' | paste -sd' '
}

play() {
	version_of pgbench
	# Without step v: VACUUM can't be fenced, so it is refused under a tag.
	maybe_tagged pgbench -i -I dtgp -q -s 1 2>/dev/null
	echo "simple: $(bench -M simple)"
	echo "extended: $(bench -M extended)"
	echo "prepared-mode: $(bench -M prepared)"
	echo "pipeline-mode: $(bench -M extended -f pipeline.pgbench)"
}

insert() { # TOKEN ROW NAME
	echo "INSERT INTO item VALUES ($2, '$3');" | tagged "$FENCE_KEY" "$1" pgbench -n -t 1 -f /dev/stdin
}

fence() {
	script=$(mktemp)
	cat >"$script" <<-'PGBENCH'
		INSERT INTO item VALUES (1, 'holder');
		\shell echo holder: ok >&4
		\shell read _ <&5
		INSERT INTO item VALUES (11, 'stale');
	PGBENCH
	echo "evicted: $(word_of tagged "$FENCE_KEY" "$FENCE_TOKEN" pgbench -n -t 1 -f "$script")"
	rm -f "$script"
	echo "stale: $(word_of insert "$FENCE_TOKEN" 12 stale)"
	echo "unknown: $(word_of insert $((FENCE_TOKEN + 1000000)) 15 stale)"
}

exec 4>&1 5<&0 # for what pgbench's script starts
"$1"
