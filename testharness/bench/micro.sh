#!/bin/sh
# Compares the micro-benchmarks of the frame reader, the reply queue, the
# classifier and the injection with those of another commit:
# micro.sh COMMIT COUNT. Both are measured in turn, each COUNT times.
set -eu
[ $# = 2 ] || {
	echo "usage: micro.sh COMMIT COUNT" >&2
	exit 1
}
base=$1 count=$2
cd "$(dirname "$0")/../.."

# One version, so that everybody reads the same statistics.
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
# Each package with the benchmarks that are its.
benchmarks='proxy/wire:Relay|Read
proxy/queue:Queue
sqlrewrite:Split$|MentionsFence
proxy:Inject'

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
mkdir "$dir/base" "$dir/bin"
git archive "$base" | tar x -C "$dir/base"

# build TREE NAME compiles the packages' tests. A package that a commit doesn't
# have, or that has no benchmarks there, has nothing to compare.
build() {
	for line in $benchmarks; do
		package=${line%%:*}
		[ -d "$1/$package" ] || continue
		(cd "$1" && go test -c -o "$dir/bin/$2-$(echo "$package" | tr / -).test" "./$package")
	done
}

# measure NAME runs what build made once.
measure() {
	for line in $benchmarks; do
		package=${line%%:*} which=${line#*:}
		binary="$dir/bin/$1-$(echo "$package" | tr / -).test"
		[ -x "$binary" ] || continue
		echo "pkg: $package" >>"$dir/$1.txt"
		(cd "$package" && "$binary" -test.run '^$' -test.bench "$which" -test.benchmem -test.benchtime 50ms) |
			grep '^Benchmark' >>"$dir/$1.txt" || [ "$1" = base ]
	done
}

build "$dir/base" base
build . now
turn=0
while [ $turn -lt "$count" ]; do
	turn=$((turn + 1))
	echo "turn $turn of $count" >&2
	measure base
	measure now
done
go run $benchstat "base=$dir/base.txt" "now=$dir/now.txt"
