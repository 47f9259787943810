#!/bin/sh
# pgbench, played straight and through fenceproxy; see ../doc.go.
set -eu

# recipe
# At connect, for every program that uses libpq; see psql. All of pgbench's
# sessions then present the same lock, as threads of one worker would.
tagged() ( # KEY TOKEN COMMAND…
	export PGOPTIONS="-c fence.key=$(printf %s "$1" | sed 's/[\\ ]/\\&/g') -c fence.token=$2"
	shift 2
	"$@"
)
# end

maybe_tagged() { if [ -n "${FENCE_KEY:-}" ]; then tagged "$FENCE_KEY" "$FENCE_TOKEN" "$@"; else "$@"; fi; }

# bench runs pgbench and prints how many transactions were made and failed.
bench() {
	maybe_tagged pgbench -n -c 4 -j 2 -t 50 "$@" 2>&1 |
		sed -n 's/^number of transactions actually processed: //p; s/^number of failed transactions: \([0-9]*\) .*/\1 failed/p; /ERROR/p' | paste -sd' '
}

play() {
	psql -V | sed 's/.* (PostgreSQL) \([0-9.]*\).*/version: \1/'
	# Without step v: VACUUM can't be fenced, so it is refused under a tag.
	maybe_tagged pgbench -i -I dtgp -q -s 1 2>/dev/null
	echo "simple: $(bench -M simple)"
	echo "extended: $(bench -M extended)"
	echo "prepared-mode: $(bench -M prepared)"
	echo "pipeline-mode: $(bench -M extended -f pipeline.pgbench)"
}

# word_of is the name of the code that pgbench ended with, or ok.
word_of() {
	word=$("$@" 2>&1 >/dev/null | sed -n 's/.*ERROR:  \([a-z_]*\):.*/\1/p' | head -n 1)
	echo "${word:-ok}"
}

insert() { # TOKEN ROW NAME
	echo "INSERT INTO item VALUES ($2, '$3');" | tagged "$FENCE_KEY" "$1" pgbench -n -t 1 -f /dev/stdin
}

fence() {
	{
		cat <<-'PGBENCH'
			INSERT INTO item VALUES (1, 'holder');
			\shell echo holder: ok >&4
			\shell read lost <&5
			INSERT INTO item VALUES (11, 'stale');
		PGBENCH
	} >"${script:=$(mktemp)}"
	echo "evicted: $(word_of tagged "$FENCE_KEY" "$FENCE_TOKEN" pgbench -n -t 1 -f "$script" 4>&4 5<&5)"
	rm -f "$script"
	echo "stale: $(word_of insert "$FENCE_TOKEN" 12 stale)"
	echo "unknown: $(word_of insert $((FENCE_TOKEN + 1000000)) 15 stale)"
}

exec 4>&1 5<&0
"$1"
