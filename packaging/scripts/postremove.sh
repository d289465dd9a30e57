#!/bin/sh
# After the files are removed. dpkg: "remove", then maybe "purge"; rpm: the number
# of versions that are left.
set -e

if [ "$1" = purge ]; then
	rm -rf /etc/genv /var/lib/genv /var/log/genv /run/genv \
		/var/lib/genv-controller /var/log/genv-controller /run/genv-controller ||
		echo "genv: some of its files are left" >&2
	rm -f /etc/systemd/system/multi-user.target.wants/genv-controller.service \
		/etc/systemd/system/multi-user.target.wants/genv-enforce.service \
		/etc/systemd/system/multi-user.target.wants/genv-guard.service \
		/etc/systemd/system/multi-user.target.wants/genv-host.service \
		/etc/systemd/system/sockets.target.wants/genv-host.socket
	# The account stays: its uid would go to another account, with all files
	# elsewhere that belong to it. /var/tmp/genv stays: the environments in it
	# belong to users, and genv 1.4.3 uses it too.
fi
case "$1" in
remove | purge | 0) # in an upgrade, postinstall does
	rm -f /var/lib/genv/loaded-units
	[ ! -d /run/systemd/system ] || systemctl daemon-reload || :
	;;
esac
