#!/bin/sh
# The import direction of the packages, as README's map of folders has it:
# each line names a package, and what of this module and of others it may
# import. The standard library is free to all.
set -eu
cd "$(dirname "$0")/.."
module=$(go list -m)

# shellcheck disable=SC2016 # $p is the template's
go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}' ./... | awk -v module="$module/" '
BEGIN {
	allow["sqlrewrite"] = "^$"
	allow["fencing"]    = "^(fencing(/|$)|github.com/jackc/pgx/v5|golang.org/x/sync/)"
	allow["leases"]     = "^(leases(/|$)|fencing$|go.etcd.io/etcd/(api|client)/|github.com/prometheus/client_golang/|go.uber.org/zap|google.golang.org/grpc)"
	allow["leases/embedded"] = "^(leases$|go.etcd.io/etcd/|go.uber.org/zap)"
	allow["leases/fencepgx"] = "^(leases$|fencing$|github.com/jackc/pgx/v5)"
	allow["proxy"]      = "^(proxy(/|$)|sqlrewrite$|fencing$|github.com/jackc/pgproto3/v2|github.com/prometheus/client_golang/|golang.org/x/)"
}
NF == 2 {
	sub(module, "", $1)
	own = sub(module, "", $2)
	split($1, path, "/")
	room = path[1]
	if ((path[1] "/" path[2]) in allow) room = path[1] "/" path[2]
	split($2, host, "/")
	if (!(room in allow) || (!own && host[1] !~ /\./)) next
	if ($2 ~ allow[room]) next
	printf "%s imports %s, which is against the import direction\n", $1, $2
	bad = 1
}
END { exit bad }
'
