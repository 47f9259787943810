#!/bin/sh
# Makes the release that is in DIR once more, from a clone in another folder with
# nothing compiled before, and compares: again.sh DIR. Lintian has nothing to say
# against the packages.
set -eu
cd "$(dirname "$0")/.."
dist=$(cd "$1" && pwd)

[ -z "$(git status --porcelain)" ] || { echo "deploy/again.sh: commit first: a clone has only what is committed" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
git clone --quiet . "$work/another"
GOCACHE=$work/cache "$work/another/deploy/release.sh" "$work/dist" >/dev/null
diff "$dist/SHA256SUMS" "$work/dist/SHA256SUMS"
echo "the same bytes, twice"
lintian --allow-root --fail-on error,warning "$dist"/*.deb
echo "Lintian finds nothing"
