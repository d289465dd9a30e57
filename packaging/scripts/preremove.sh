#!/bin/sh
# Before the files are removed. dpkg: "remove", or "upgrade NEW VERSION"; rpm: the
# number of versions that will be left, 0 in a removal.
set -e

units='genv-controller.service genv-enforce.service genv-guard.service genv-host.socket genv-host.service'
case "$1" in
# Running services continue during an upgrade; postinstall restarts them.
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	invoke=systemctl
	if command -v deb-systemd-invoke >/dev/null; then invoke=deb-systemd-invoke; fi # honours policy-rc.d
	# shellcheck disable=SC2086 # one word per unit
	$invoke stop $units || :
fi
# Without the program no user could change the state that root owns.
if [ -e /var/lib/genv/host/owner.json ]; then
	genv host handover || echo "genv: the state of this host stays root's, in /var/lib/genv/host" >&2
fi
# dpkg keeps the configuration, which includes that a service is enabled.
if [ "$1" = 0 ] && command -v systemctl >/dev/null; then
	# shellcheck disable=SC2086 # one word per unit
	systemctl --no-reload disable $units || :
fi
