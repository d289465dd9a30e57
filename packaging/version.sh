#!/bin/sh
# packaging/version.sh VERSION [SECONDS] prints the version of the packages, which dpkg
# and rpm sort rightly: v1.2.0-rc1 is before v1.2.0, and that before v1.2.0-3-g0123abc.
# A commit without a tag is before all that have one; SECONDS is its time.
set -eu

case "$1" in
v[0-9]* | [0-9]*.*)
	echo "$1" | sed -E 's/^v//; s/-dirty$/+dirty/; s/-([0-9]+)-g([0-9a-f]+)/+\1.g\2/; s/-/~/g'
	;;
*)
	echo "0~$(date -u -d "@${2:-0}" +%Y%m%d%H%M%S).$(echo "$1" | sed 's/[^0-9A-Za-z]/./g')"
	;;
esac
