#!/bin/sh
# After the files are in place. dpkg: "configure [OLD VERSION]"; rpm: the number
# of versions that are installed, 2 in an upgrade.
set -e

case "$1 $2" in
"configure "?* | "2 ") upgrade=yes ;;
"configure " | "1 ") upgrade= ;;
*) exit 0 ;; # abort-upgrade, abort-remove, …: the old state is still there
esac

# The account of the controller, and of its logins on hosts if an administrator
# wants that: sshd runs the controller's commands with the login's shell, so it
# has one. It has no password and no key, so that no login is possible until an
# administrator adds a key.
if ! getent passwd genv >/dev/null; then
	group=--user-group
	if getent group genv >/dev/null; then group='--gid genv'; fi
	# shellcheck disable=SC2086 # one word, or two
	useradd --system $group --no-create-home --home-dir /var/lib/genv-controller \
		--shell /bin/sh --password '*' --comment 'genv controller' genv
fi
if [ "$(id -u genv)" = 0 ]; then
	echo "genv: the account genv has the uid 0; the controller needs an account of its own" >&2
	exit 1
fi

# folder PATH MODE OWNER makes a folder. One that is there keeps its mode and owner.
folder() {
	[ -e "$1" ] || [ -L "$1" ] || install -d -m "$2" -o "$3" -g "$(id -gn "$3")" "$1"
}
# What root's genv keeps on a GPU host.
folder /var/lib/genv 0755 root
folder /var/log/genv 0755 root
# What the controller keeps.
folder /var/lib/genv-controller 0700 genv
folder /var/log/genv-controller 0750 genv

# Without a running systemd, as in a container or a chroot, the rest is not needed.
[ -d /run/systemd/system ] || exit 0
systemd-tmpfiles --create genv.conf || :
systemctl daemon-reload || :
[ "$upgrade" ] || exit 0
# Only services that run are restarted. One that fails with the new version is no
# reason to leave the package half installed.
invoke=systemctl
if command -v deb-systemd-invoke >/dev/null; then invoke=deb-systemd-invoke; fi # honours policy-rc.d
for unit in genv-controller.service genv-enforce.service genv-host.service; do
	$invoke try-restart $unit || echo "genv: $unit did not start again: systemctl status $unit" >&2
done
