#!/bin/sh
# Runs every fuzz target of the module for the given time each: fuzz.sh 20s
set -eu
cd "$(dirname "$0")/.."
git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n 1 dirname | sort -u | while read -r dir; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go | while read -r target; do
		echo "$dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-20s}" "./$dir"
	done
done
