#!/bin/sh
# Finds what a make target needs, installs what the system's package manager
# has, and names the rest. Called by the Makefile: setup.sh NEED...
#
#   go        the Go toolchain (never installed, only named)
#   cc        a C compiler and libc headers, for -race and a test-only parser
#   postgres  PostgreSQL server binaries, psql and pgbench
#   etcdctl   etcd's command-line client, which tests take locks with
#   python    Python and libpq, for the worker of docs/your-workload.md
#   shells    bash-completion, zsh, fish and mandoc, which completion and manual
#             pages are tried with
#   lint      shellcheck and git
#   deploy    systemd-analyze and promtool, which look at what deploy/ has
#   release   git and GNU tar
#   lintian   Lintian, which looks at Debian packages
#   peers     PgBouncer and HAProxy, which benchmarks measure beside the proxy
#   browser   Chromium, Node.js and Playwright, which make dashboard looks at the page with
#   clients   the languages and drivers of those that $CLIENTS names (all)
#
# It is silent and touches nothing when everything is there.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

die() {
	echo "setup: $*" >&2
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# as_root runs a command as root: directly, or through sudo.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif has sudo; then
		sudo "$@"
	else
		die "root is needed for: $* (run it as root, then make again)"
	fi
}

# install WHY PACKAGE... says what it installs and why, then installs it. A
# fresh machine has empty package lists, so they are fetched first.
install() {
	why=$1
	shift
	has apt-get || die "missing: $why. Install the counterpart of Debian's package $* and run make again"
	[ "$(id -u)" = 0 ] || has sudo || die "missing: $why. Run as root: apt-get update && apt-get install -y $*"
	echo "setup: installing $* with apt-get: $why" >&2
	quiet as_root apt-get update
	quiet as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# provide WHY CHECK PACKAGE... installs the packages if the check fails, and
# checks again: a package may not have what it had elsewhere.
provide() {
	what=$1 check=$2
	shift 2
	if ! eval "$check" >/dev/null 2>&1; then
		install "$what" "$@"
		eval "$check" >/dev/null 2>&1 || die "missing: $what. apt-get took $*, and this still fails: $check"
	fi
}

# for_now FILE removes a file when this script ends.
for_now() {
	temporary="${temporary:-} $1"
	trap 'as_root rm -f $temporary' EXIT
	trap 'exit 1' HUP INT TERM # which ends with the line above
}

# quiet shows a command's output only if it fails.
quiet() {
	log=$(mktemp)
	if ! "$@" >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		die "this failed: $*"
	fi
	rm -f "$log"
}

need_go() {
	want=$(sed -n 's/^go //p' "$here/go.mod")
	has go || die "missing: Go $want or newer; get it from https://go.dev/dl/"
	have=$(cd "$here" && go env GOVERSION 2>/dev/null | sed 's/^go//')
	lowest=$(printf '%s\n%s\n' "$want" "${have:-0}" | sort -V | head -n 1)
	[ "$lowest" = "$want" ] ||
		die "Go $want or newer is needed and $(go version | cut -d' ' -f3) was found; get it from https://go.dev/dl/"
}

has_cc() { has "${CC:-gcc}"; }
has_headers() { echo '#include <stdlib.h>' | "${CC:-gcc}" -E -; }

need_cc() {
	why="for the race detector and a test-only parser"
	provide "a C compiler, $why" has_cc gcc libc6-dev
	provide "the C library's headers, $why" has_headers libc6-dev
}

# server_dir prints the folder of the PostgreSQL server binaries. The test
# harness looks in the same places, in the same order.
server_dir() {
	for dir in "${FENCEPROXY_PG_BIN:-}" $(echo "$PATH" | tr ':' ' ') \
		$(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
			/opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin /usr/local/pgsql/bin | sort -rV); do
		if [ -n "$dir" ] && [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ]; then
			echo "$dir"
			return
		fi
	done
	return 1
}

# client NAME says whether a client program is beside the server or on PATH.
client() { [ -x "$(server_dir)/$1" ] || has "$1"; }

need_postgres() {
	if [ -n "${FENCEPROXY_PG_BIN:-}" ] && [ ! -x "$FENCEPROXY_PG_BIN/postgres" ]; then
		die "FENCEPROXY_PG_BIN is $FENCEPROXY_PG_BIN, and there is no program postgres in it"
	fi
	if ! server_dir >/dev/null; then
		install_server
		server_dir >/dev/null || die "no PostgreSQL server binaries were found; set FENCEPROXY_PG_BIN to their folder"
	fi
	for program in psql pgbench; do
		provide "$program, which tests drive the proxy with" "client $program" postgresql-client
	done
}

# install_server installs the binaries without the cluster that Debian would
# create and start on port 5432: tests make their own, throw-away ones.
install_server() {
	conf=/etc/postgresql-common/createcluster.d
	if has apt-get && [ ! -d /etc/postgresql-common ]; then
		as_root mkdir -p $conf
		for_now $conf/fenceproxy.conf
		echo 'create_main_cluster = false' | as_root tee $conf/fenceproxy.conf >/dev/null
	fi
	install "PostgreSQL server binaries, for throw-away databases" postgresql
}

need_etcdctl() {
	provide "etcdctl 3.4 or newer, which tests take locks with (https://etcd.io has it too)" 'etcdctl version' etcd-client
}

need_python() {
	provide "Python and libpq, for the worker of docs/your-workload.md" \
		'python3 -c "import ctypes; ctypes.CDLL(\"libpq.so.5\")"' python3 libpq5
}

need_shells() {
	provide "bash's completion, which tests press Tab in" 'test -e /usr/share/bash-completion/bash_completion' bash-completion
	provide "zsh, which tests press Tab in" 'has zsh' zsh
	provide "fish, which tests press Tab in" 'has fish' fish
	provide "mandoc, which tests read the manual pages with" 'has mandoc' mandoc
}

# start_nothing keeps Debian from starting the services that it installs until
# this script ends.
start_nothing() {
	policy=/usr/sbin/policy-rc.d
	if has apt-get && [ ! -e $policy ]; then
		for_now $policy
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
		as_root chmod 755 $policy
	fi
}

# need_peers starts no service: benchmarks start what they need, on other ports.
need_peers() {
	{ has_peer pgbouncer && has_peer haproxy; } || start_nothing
	provide "PgBouncer, for make bench" 'has_peer pgbouncer' pgbouncer
	provide "HAProxy, for make bench" 'has_peer haproxy' haproxy
}

# has_peer NAME looks for a server where only root's PATH leads, too.
has_peer() { has "$1" || [ -x "/usr/sbin/$1" ]; }

# need_clients installs the languages and drivers of the clients that CLIENTS
# names, or of all.
need_clients() {
	if played psycopg2 "SQLAlchemy on psycopg2"; then apt_client python3-psycopg2 '/usr/bin/python3 -c "import psycopg2"'; fi
	if played psycopg; then apt_client python3-psycopg '/usr/bin/python3 -c "import psycopg"'; fi
	if played asyncpg "SQLAlchemy on asyncpg"; then apt_client python3-asyncpg '/usr/bin/python3 -c "import asyncpg"'; fi
	if played "SQLAlchemy on psycopg2" "SQLAlchemy on asyncpg"; then
		apt_client python3-sqlalchemy '/usr/bin/python3 -c "import sqlalchemy, greenlet"' python3-greenlet
	fi
	if played DBD::Pg; then apt_client libdbd-pg-perl 'perl -MDBD::Pg -e 1'; fi
	if played ruby-pg; then apt_client ruby-pg 'ruby -rpg -e 1'; fi
	if played PDO_pgsql; then
		apt_client php-pgsql 'php -r "exit(in_array(\"pgsql\", PDO::getAvailableDrivers()) ? 0 : 1);"' php-cli
	fi
	if played pgjdbc; then
		apt_client default-jdk-headless 'javac -version'
		apt_client libpostgresql-jdbc-java 'test -e /usr/share/java/postgresql.jar'
	fi
	if played node-postgres postgres.js; then need_node; fi
}

# played NAME... says whether one of the clients is to be played.
played() {
	for name in "$@"; do
		case ",${CLIENTS:-all}," in *,all,* | *",$name,"*) return 0 ;; esac
	done
	return 1
}

need_node() {
	apt_client npm 'npm --version' nodejs
	npm_packages "$here/testharness/clients/programs/node" "node-postgres and postgres.js with npm, for make clients"
}

# npm_packages FOLDER WHAT installs what the folder's lock file has.
npm_packages() {
	if ! cmp -s "$1/package-lock.json" "$1/node_modules/.fenceproxy-lock"; then
		echo "setup: installing $2" >&2
		quiet npm ci --prefix "$1" --no-audit --no-fund
		cp "$1/package-lock.json" "$1/node_modules/.fenceproxy-lock"
	fi
}

# need_browser takes Chromium from the system: Playwright would download its own.
need_browser() {
	if [ -n "${FENCEPROXY_CHROMIUM:-}" ]; then
		[ -x "$FENCEPROXY_CHROMIUM" ] || die "FENCEPROXY_CHROMIUM is $FENCEPROXY_CHROMIUM, and there is no such program"
	else
		provide "Chromium, for make dashboard (FENCEPROXY_CHROMIUM names another one)" 'has chromium || has chromium-browser || has google-chrome' chromium
	fi
	provide "Node.js and npm, for make dashboard" 'node --version && npm --version' npm nodejs
	node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || die "Node.js 20 or newer is needed for make dashboard, and $(node --version) was found"
	npm_packages "$here/testharness/browser/page" "Playwright and axe-core with npm, for make dashboard"
}

# apt_client PACKAGE CHECK PACKAGE... provides what the check looks for.
apt_client() {
	package=$1 look=$2
	shift 2
	provide "$package, for make clients" "$look" "$package" "$@"
}

need_deploy() {
	provide "systemd-analyze, for make deploy-check" 'has systemd-analyze' systemd
	has promtool || start_nothing
	provide "promtool, for make deploy-check" 'has promtool' prometheus
}

need_release() {
	provide "git, for make release" 'has git' git
	provide "GNU tar, for make release" 'tar --version | grep GNU' tar
}

need_lintian() {
	provide "Lintian, for make release-check" 'has lintian' lintian
}

need_lint() {
	provide "git, for make lint" 'has git' git
	provide "shellcheck, for make lint" 'has shellcheck' shellcheck
}

[ $# -gt 0 ] || die "usage: setup.sh go|cc|postgres|etcdctl|python|shells|lint|browser|clients|peers|deploy|release|lintian ..."
for need in "$@"; do
	case $need in
	go | cc | postgres | etcdctl | python | shells | lint | browser | clients | peers | deploy | release | lintian) "need_$need" ;;
	*) die "unknown need $need: go, cc, postgres, etcdctl, python, shells, lint, browser, clients, peers, deploy, release or lintian" ;;
	esac
done
