#!/bin/sh
# Looks for known vulnerabilities in what the code calls, and whether the
# modules on this machine are those that go.sum names. Ends with 0 only if all of
# it could be looked at and nothing was found.
#
# The database is vuln.go.dev's; where that can't be reached, it is taken from
# the module that it is published as, golang.org/x/vulndb. AUDIT_DB=URL, with
# https or file, is another one.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
SCANNER=golang.org/x/vuln/cmd/govulncheck@v1.9.0
SOURCE=golang.org/x/vulndb
MODULES=". deploy/check testharness/clients/programs/golang"
# A database that doesn't know this one knows nothing.
OLD=golang.org/x/text@v0.3.0
OLD_HAS="GO-2020-0015"

report=$(mktemp)
trap 'rm -f "$report"' EXIT
trap 'exit 1' HUP INT TERM

die() {
	echo "audit: $*" >&2
	exit 1
}

# scan DIR DATABASE ARGUMENT... writes what govulncheck says into $report.
scan() {
	dir=$1 from=$2
	shift 2
	(cd "$dir" && "$GO" run "$SCANNER" -db "$from" "$@") >"$report" 2>&1
}

# knows DATABASE says whether a database can be read and has something in it.
knows() {
	scan . "$1" -mode query -format json "$OLD" && grep -q "\"$OLD_HAS\"" "$report"
}

# published prints the database's module: its version, and the folder of the
# entries.
published() {
	(cd / && "$GO" mod download -json "$SOURCE@latest" 2>/dev/null) |
		sed -n 's/^\t"Version": "\(.*\)",$/\1/p; s/^\t"Dir": "\(.*\)",$/\1/p'
}

# choose sets database to one that answers.
choose() {
	database=${AUDIT_DB:-https://vuln.go.dev}
	if knows "$database"; then
		echo "audit: the database is $database"
		return
	fi
	[ -z "${AUDIT_DB:-}" ] || die "AUDIT_DB=$AUDIT_DB can't be read, or knows nothing"
	module=$(published)
	version=$(echo "$module" | sed -n 1p)
	database=file://$(echo "$module" | sed -n 2p)/data/osv
	{ [ -n "$version" ] && knows "$database"; } ||
		die "nothing was looked at: neither https://vuln.go.dev nor the module $SOURCE can be had here; AUDIT_DB=file:///a/copy of it is taken too"
	echo "audit: vuln.go.dev can't be reached; the database is $SOURCE $version, as of $(dated "$version")"
}

# dated is the day in a version without a tag.
dated() { echo "$1" | sed 's/.*[-.]\([0-9]\{4\}\)\([0-9]\{2\}\)\([0-9]\{2\}\)[0-9]\{6\}-.*/\1-\2-\3/'; }

# shorten leaves out all but the first two ways into each vulnerable function.
shorten() { sed '/^ *#\([3-9]\|[0-9][0-9]\)/d' "$report"; }

found=
for dir in $MODULES; do
	(cd "$dir" && "$GO" mod verify >/dev/null) || die "$dir: a module isn't what go.sum says"
done
echo "audit: all modules are those that go.sum names"
choose
echo "audit: built with $("$GO" env GOVERSION)"
for dir in $MODULES; do
	if scan "$dir" "$database" ./...; then
		echo "audit: $dir: nothing known"
	elif grep -q '^Your code is affected' "$report"; then
		found="$found $dir"
		echo "audit: $dir:"
		shorten
	else
		cat "$report"
		die "$dir could not be looked at"
	fi
done
[ -z "$found" ] || die "known vulnerabilities in:$found. Of the standard library's, a newer Go is the cure"
