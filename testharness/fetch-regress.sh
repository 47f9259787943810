#!/bin/sh
# Prints a folder with PostgreSQL 15's own test suites: the SQL, specs and
# expected files of its source (src), the library that the tests load (lib) and
# the program libpq_pipeline (bin). They are of the very version that Debian's
# package has installed, whose pg_regress and isolationtester run them.
#
# Source and headers come from the repository that the package came from, by
# apt with lists of its own: the system's are not touched, and nothing is
# installed. The folder is made once, in the user's cache folder; as the server
# must read it and can't enter root's home, root's is under /var/cache.
set -eu

die() {
	echo "fetch-regress: $*" >&2
	exit 1
}

# The major version, which the list of differences in testharness/pgregress is
# of too.
major=15
server=/usr/lib/postgresql/$major
for program in apt-get apt-cache dpkg-query dpkg-deb gcc tar bzip2; do
	command -v $program >/dev/null 2>&1 || die "missing: $program; PostgreSQL's suites are run on Debian, with its package postgresql-$major"
done
version=$(dpkg-query -W -f '${Version}' postgresql-$major 2>/dev/null) ||
	die "missing: PostgreSQL $major with the programs of its suites. Run as root: apt-get install -y postgresql-$major"
for program in regress/pg_regress isolation/pg_isolation_regress isolation/isolationtester; do
	[ -x "$server/lib/pgxs/src/test/$program" ] || die "missing: $server/lib/pgxs/src/test/$program, of package postgresql-client-$major"
done

if [ "$(id -u)" = 0 ]; then
	cache=/var/cache
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}
fi
home=$cache/fenceproxy/regress/$version
if [ -d "$home" ]; then
	echo "$home"
	exit
fi

work=$home.new.$$
umask 022
mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/src" "$work/lib" "$work/bin"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
cd "$work"
echo "fetch-regress: fetching source and headers of postgresql-$major $version" >&2

# madison's lines are "package | version | URL suite/component arch Packages".
from() {
	apt-cache madison "$1" | awk -F ' *[|] *' -v version="$version" '
		$2 == version { split($3, from, " "); sub("/", " ", from[2]); print from[1], from[2]; exit }'
}
repository=$(from "postgresql-server-dev-$major")
[ -n "$repository" ] ||
	die "no repository of this system has postgresql-$major $version (any more). Run as root: apt-get update && apt-get install -y postgresql-$major"
printf 'deb %s\ndeb-src %s\n' "$repository" "$repository" >apt/sources.list

apt() {
	apt-get -qq -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt" \
		-o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none "$@" >apt/log 2>&1 ||
		{ cat apt/log >&2; die "this failed: apt-get $*"; }
}
apt update
apt source --download-only "postgresql-$major=$version"
apt download "postgresql-server-dev-$major=$version"

tar xjf postgresql-*.orig.tar.bz2 --strip-components=1 -C src
dpkg-deb -x postgresql-server-dev-*.deb headers
include=headers/usr/include/postgresql/$major/server
gcc -O2 -fPIC -shared -w -I "$include" -o lib/regress.so src/src/test/regress/regress.c
cp "$server/lib/autoinc.so" "$server/lib/refint.so" lib/
gcc -O2 -w -I src/src/interfaces/libpq -I "$include" -o bin/libpq_pipeline \
	src/src/test/modules/libpq_pipeline/libpq_pipeline.c \
	-L "headers/usr/lib/postgresql/$major/lib" -lpgcommon -lpgport -l:libpq.so.5 -lm

mv src/src/test test
rm -rf src apt headers postgresql-*
mkdir src
mv test/regress test/isolation test/modules/libpq_pipeline src/
rm -rf test
cd /
# Several may fetch at once: the first one's is kept.
[ -d "$home" ] || mv "$work" "$home" || die "could not keep it in $home"
echo "$home"
