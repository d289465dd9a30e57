#!/bin/sh
# packaging/build.sh makes the packages of `make packages`. Run it in the root of the
# repository. These variables say what:
#
#   DIST      where the packages go (dist)
#   VERSION   what `genv version` prints, such as v1.2.0 or v1.2.0-3-g0123abc
#   ARCHES    architectures (amd64 arm64)
#   FORMATS   of deb, rpm, tar, and sbom: the modules in each program, as CycloneDX (deb rpm tar)
#   NFPM      the program nfpm
#   CYCLONEDX the program cyclonedx-gomod, for sbom
#   KEY       a private key of ssh, which signs SHA256SUMS
#   DEB_COMPRESSION  gzip, or none, for tests: it takes a tenth of the time
#   GENV      a built genv to pack instead of building one, for tests
#
# The same commit and the same Go give the same bytes.
set -eu

DIST=${DIST:-dist}
VERSION=${VERSION:-unversioned}
ARCHES=${ARCHES:-amd64 arm64}
FORMATS=${FORMATS:-deb rpm tar}
NFPM=${NFPM:-nfpm}
DEB_COMPRESSION=${DEB_COMPRESSION:-gzip}
GENV=${GENV:-}
CYCLONEDX=${CYCLONEDX:-cyclonedx-gomod}
KEY=${KEY:-}
export LC_ALL=C TZ=UTC # the order of names
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
umask 022

# third_party prints the licences of all modules in the program, which ask for that.
third_party() {
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/genv | sort -u |
		while read -r path version dir; do
			found=
			for file in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
				[ -f "$file" ] || continue
				found=yes
				printf '\n---- %s %s: %s\n\n' "$path" "$version" "${file##*/}"
				cat "$file"
			done
			[ "$found" ] || { echo "packaging: $path has no licence file" >&2; exit 1; }
		done
	if [ -f "$(go env GOROOT)/LICENSE" ]; then
		printf '\n---- Go: LICENSE\n\n'
		cat "$(go env GOROOT)/LICENSE"
	fi
}

# shared makes what is the same on all architectures: it is printed by genv itself.
shared() {
	genv=$GENV
	if [ -z "$genv" ]; then
		genv=$BUILD/native/genv
		GOARCH='' GOOS='' make -s build BIN="$genv" VERSION="$VERSION"
	fi
	mkdir -p "$BUILD/man" "$BUILD/completion" "$BUILD/examples"
	for name in hosts policy config; do
		sed 's,\$schema=docs/,$schema=/usr/share/doc/genv/docs/,' "$name.example.yaml" >"$BUILD/examples/$name.yaml"
	done
	"$genv" man "$BUILD/man"
	gzip -9n "$BUILD"/man/*.1
	for shell in bash zsh fish; do
		"$genv" completion $shell >"$BUILD/completion/genv.$shell"
	done
	third_party >"$BUILD/third-party"
	{
		printf 'genv. Its source is https://github.com/seed-3119e985/genv. Its licence follows, and then\n'
		printf 'those of the libraries that are part of the program.\n\n'
		cat LICENSE "$BUILD/third-party"
	} >"$BUILD/copyright"
}

# tarball ARCH makes what `tar -C /usr/local --strip-components=1 -xf` installs.
tarball() {
	name=genv-$PACKAGE_VERSION-linux-$1
	top=$BUILD/$1/$name
	doc=$top/share/doc/genv
	make -s install BIN="$BUILD/$1/genv" DESTDIR="$top" PREFIX=
	mkdir -p "$top/share/man/man1" "$top/share/bash-completion/completions" "$top/share/zsh/site-functions" \
		"$top/share/fish/vendor_completions.d" "$top/lib/systemd/system" "$top/lib/tmpfiles.d" "$doc/docs/schema" "$doc/examples/monitoring"
	cp "$BUILD"/man/*.1.gz "$top/share/man/man1/"
	cp "$BUILD/completion/genv.bash" "$top/share/bash-completion/completions/genv"
	cp "$BUILD/completion/genv.zsh" "$top/share/zsh/site-functions/_genv"
	cp "$BUILD/completion/genv.fish" "$top/share/fish/vendor_completions.d/genv.fish"
	for unit in packaging/systemd/*.service remote/install/onhost/systemd/*; do
		sed 's,/usr/bin/genv,/usr/local/bin/genv,; s,/usr/share/doc,/usr/local/share/doc,' "$unit" >"$top/lib/systemd/system/${unit##*/}"
	done
	cp packaging/systemd/tmpfiles.conf "$top/lib/tmpfiles.d/genv.conf"
	cp LICENSE README.md CHANGELOG.md "$BUILD/copyright" "$doc/"
	cp docs/*.md "$doc/docs/"
	cp docs/monitoring/* "$doc/examples/monitoring/"
	cp docs/schema/*.json "$doc/docs/schema/"
	cp packaging/policy.yaml "$doc/examples/policy.minimal.yaml"
	cp "$BUILD"/examples/*.yaml "$doc/examples/"
	sed -i 's,\$schema=/usr/share,$schema=/usr/local/share,' "$doc"/examples/*.yaml
	sed 's,/usr/bin/genv,/usr/local/bin/genv,g' packaging/examples/sudoers >"$doc/examples/sudoers"
	chmod -R u=rwX,go=rX "$top"
	tar -C "$BUILD/$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--format=ustar -cf - "$name" | gzip -9n >"$DIST/$name.tar.gz"
}

# package FORMAT. nfpm prints its errors on stdout.
package() {
	sed "s/compression: gzip/compression: $DEB_COMPRESSION/" packaging/nfpm.yaml >"$BUILD/nfpm.yaml"
	"$NFPM" package --config "$BUILD/nfpm.yaml" --packager "$1" --target "$DIST/" >"$BUILD/nfpm.log" || {
		cat "$BUILD/nfpm.log" >&2
		exit 1
	}
}

# bill lists the modules that a program consists of.
bill() {
	"$CYCLONEDX" bin -json -noserial -notimestamp -std -version "$VERSION" \
		-output "$DIST/genv-$PACKAGE_VERSION-linux-$1.cdx.json" "$BUILD/$1/genv"
}

mkdir -p "$DIST"
DIST=$(cd "$DIST" && pwd)
rm -rf "$DIST/build" "$DIST"/genv[-_]*.deb "$DIST"/genv-*.rpm "$DIST"/genv-*.tar.gz "$DIST"/genv-*.cdx.json "$DIST"/SHA256SUMS*
BUILD=$DIST/build
PACKAGE_VERSION=$(packaging/version.sh "$VERSION" "$SOURCE_DATE_EPOCH")
export SOURCE_DATE_EPOCH BUILD PACKAGE_VERSION ARCH
shared
for ARCH in $ARCHES; do
	mkdir -p "$BUILD/$ARCH"
	if [ -n "$GENV" ]; then
		cp "$GENV" "$BUILD/$ARCH/genv"
	else
		GOOS=linux GOARCH=$ARCH make -s build BIN="$BUILD/$ARCH/genv" VERSION="$VERSION"
	fi
	for format in $FORMATS; do
		case $format in
		tar) tarball "$ARCH" ;;
		sbom) bill "$ARCH" ;;
		*) package "$format" ;;
		esac
	done
done
rm -rf "$BUILD"
cd "$DIST"
sha256sum genv[-_]* >SHA256SUMS
[ -z "$KEY" ] || ssh-keygen -q -Y sign -f "$KEY" -n genv SHA256SUMS
ls -l
