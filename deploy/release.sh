#!/bin/sh
# Makes a release of the commit that is checked out: release.sh DIR. For each
# architecture an archive, a Debian package and a list of what went into the
# binary (CycloneDX), and the checksums of all. The same commit and the same Go
# give the same bytes, on whatever machine and in whatever folder. ARCHS picks.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
ARCHS=${ARCHS:-amd64 arm64}
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

[ $# = 1 ] || { echo "usage: deploy/release.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dist=$(cd "$1" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM # which ends with the line above
rm -f "$dist"/fenceproxy[_-]* "$dist"/SHA256SUMS

# Everything that bears a time bears the commit's.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH STAGE="$stage" ARCH VERSION
umask 022

build() { CGO_ENABLED=0 GOFLAGS='' $GO build -trimpath -buildvcs=true -ldflags='-s -w' -o "$stage/$1" ./cmd/fenceproxy; }

# debian_changelog prints what Debian's tools read of a package's version.
debian_changelog() {
	printf 'fenceproxy (%s) unstable; urgency=medium\n\n  * What users observe is in CHANGELOG.md.gz beside this file.\n\n' "$VERSION"
	printf ' -- %s  %s\n' "$(sed -n 's/^maintainer: //p' deploy/debian/nfpm.yaml)" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
}

gzip -9n <CHANGELOG.md >"$stage/CHANGELOG.md.gz"
# The program that can run here tells what people and shells ask about it.
build here
mkdir "$stage/man" "$stage/completions"
"$stage/here" man "$stage/man"
gzip -9n "$stage"/man/*
for shell in bash zsh fish; do
	"$stage/here" completion $shell >"$stage/completions/fenceproxy.$shell"
done
for ARCH in $ARCHS; do
	GOOS=linux GOARCH=$ARCH build fenceproxy
	# What `fenceproxy version` says: a tag, or the time and the commit.
	version=$($GO version -m "$stage/fenceproxy" | awk '$1 == "mod" { print $3 }')
	name=fenceproxy_${version#v}_linux_$ARCH

	mkdir "$stage/$name"
	cp "$stage/fenceproxy" LICENSE README.md CHANGELOG.md deploy/roles.sql deploy/grants.sql \
		deploy/systemd/fenceproxy.service deploy/systemd/fenceproxy.socket "$stage/$name"
	cp -r "$stage/man" "$stage/completions" "$stage/$name"
	tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
		-C "$stage" -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
	rm -r "${stage:?}/$name"

	# Debian's ~ sorts before the release, as the - of a version's suffix does.
	VERSION=$(echo "${version#v}" | tr - '~')
	debian_changelog | gzip -9n >"$stage/changelog.gz"
	$GO run $nfpm package --config deploy/debian/nfpm.yaml --packager deb --target "$dist/fenceproxy_${VERSION}_$ARCH.deb" >/dev/null
	$GO run $sbom bin -json -noserial -notimestamp -version "$version" -output "$dist/$name.cdx.json" "$stage/fenceproxy" 2>"$stage/sbom.log" ||
		{ cat "$stage/sbom.log" >&2; exit 1; }
done
cd "$dist"
sha256sum fenceproxy_* >SHA256SUMS
cat SHA256SUMS
