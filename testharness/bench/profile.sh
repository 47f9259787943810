#!/bin/sh
# Profiles a proxy in the benchmark's own process while pgbench works through
# it, and shows what its CPU time went to. PROFILE_CLIENTS says with how many
# clients ("8 32"), and PROFILE_KEEP names a folder to leave the profiles in.
set -eu
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
for clients in ${PROFILE_CLIENTS:-8 32}; do
	go test -run '^$' -bench "Server/clients=$clients\$" -benchtime 1x -o "$dir/bench.test" \
		-cpuprofile "$dir/cpu" ./testharness/bench
	go tool pprof -top -nodecount 40 "$dir/bench.test" "$dir/cpu"
	go tool pprof -top -cum -nodecount 50 "$dir/bench.test" "$dir/cpu"
	if [ -n "${PROFILE_KEEP:-}" ]; then cp "$dir/cpu" "$PROFILE_KEEP/cpu-$clients.prof"; fi
done
