#!/bin/sh
# What PostgreSQL's own programs share; their scripts source it.
# shellcheck disable=SC2034 # they use the variables
set -eu

# recipe
# At connect, for every program that uses libpq: PostgreSQL wants a backslash
# before each space and backslash. `fenceproxy lock` exports PGOPTIONS itself.
tagged() ( # KEY TOKEN COMMAND…
	escaped=$(printf %s "$1" | sed 's/[\\ ]/\\&/g')
	export PGOPTIONS="-c fence.key=$escaped -c fence.token=$2"
	shift 2
	"$@"
)

# Later, in psql's SQL: for the session, or for one transaction.
in_session="SET fence.key = :'key'; SET fence.token = :token;"
in_transaction="BEGIN; SET LOCAL fence.key = :'key'; SET LOCAL fence.token = :token;"

# Applications have no rights on schema fence, and marks are not to be restored.
# Nor can they restore what was granted to the proxy's role on pg_authid, if it
# was granted in this database: --no-acl leaves all such rights out.
dump() { pg_dump --exclude-schema=fence --no-acl "$@"; }
# end

maybe_tagged() { if [ -n "${FENCE_KEY:-}" ]; then tagged "$FENCE_KEY" "$FENCE_TOKEN" "$@"; else "$@"; fi; }

# version_of prints the version of one of PostgreSQL's programs.
version_of() { "$1" -V | sed 's/.* (PostgreSQL) \([0-9.]*\).*/version: \1/'; }

# word_of is the name of the code of the first error that a program shows.
word_of() {
	word=$("$@" 2>&1 >/dev/null | sed -n 's/.*ERROR:  \([a-z_]*\):.*/\1/p' | head -n 1)
	echo "${word:-ok}"
}
