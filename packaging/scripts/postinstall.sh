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
# The controller's key, and for `genv remote install` its public half. The account makes it: root follows no
# link in its home.
home=$(getent passwd genv | cut -d: -f6)
# shellcheck disable=SC2016 # for the account's shell
public=$(command -v ssh-keygen >/dev/null && setpriv --reuid genv --regid genv --init-groups sh -c '
	umask 077
	cd "$1" && mkdir -p .ssh && set -- .ssh/id_* || exit 0
	[ -e "$1" ] || ssh-keygen -q -t ed25519 -N "" -C "genv controller on $(uname -n)" -f .ssh/id_ed25519
	head -c 1000 .ssh/id_ed25519.pub | head -n 1' sh "$home" 2>/dev/null) || :
[ -z "$public" ] || printf '%s\n' "$public" >/etc/genv/controller.pub

# next_step says what to do after the first installation.
next_step() {
	if [ -e /proc/driver/nvidia/version ]; then
		echo "genv: next, on this GPU host: \`genv gpus\` shows who uses what; \`systemctl enable --now genv-enforce\` enforces"
		echo "genv: /etc/genv/policy.yaml on this machine alone. A jump host does that for all: /usr/share/doc/genv/README.md"
	else
		echo "genv: next, on this jump host: name the GPU hosts in /etc/genv/hosts.yaml, as \`hosts: [gpu-01.lab]\`, see their"
		echo "genv: GPUs with \`genv remote gpus\`, not as root but as somebody who may ssh there, and go on with step 3 of"
		echo "genv: /usr/share/doc/genv/README.md"
	fi
}

# Containers can lose their GPUs when systemd loads all units again, so it does that only for others than it loaded last. It
# compares no more than times (NeedDaemonReload), and an older package has older files.
loaded=/var/lib/genv/loaded-units
units=$(cksum /usr/lib/systemd/system/genv-*)
note_loaded() { printf '%s\n' "$units" >$loaded || :; }
# Without a running systemd, as in a container or a chroot, the rest is not needed.
if [ ! -d /run/systemd/system ]; then
	note_loaded # by the next boot
	[ "$upgrade" ] || next_step
	exit 0
fi
systemd-tmpfiles --create genv.conf || :
if [ "$units" != "$(cat $loaded 2>/dev/null)" ] && systemctl daemon-reload; then note_loaded; fi
invoke=systemctl
if command -v deb-systemd-invoke >/dev/null; then invoke=deb-systemd-invoke; fi # honours policy-rc.d
if [ -z "$upgrade" ]; then
	# Root owns the state from the beginning where that changes nothing for anybody.
	if why=$(/usr/bin/genv host install --why-not-new) && [ -z "$why" ]; then
		echo "genv: root owns the state of this host, by genv-host.service: see docs/host.md"
		{ systemctl --quiet enable genv-host.socket genv-host.service && $invoke start genv-host.socket genv-host.service; } ||
			echo "genv: genv-host.service did not start: systemctl status genv-host" >&2
	fi
	next_step
	exit 0
fi
# policy_ok says what the new version does not accept in the policy, or ignores.
policy_ok() {
	ok=yes
	configured=$(sed -n 's/^[[:space:]]*policy:[[:space:]]*["'\'']\{0,1\}\(\/[^"'\''#[:space:]]*\).*/\1/p' /etc/genv/config.yaml 2>/dev/null) || :
	for file in /etc/genv/policy.yaml $configured; do
		[ -e "$file" ] || continue
		GENV_CONFIG_DIR=/etc/genv /usr/bin/genv policy check "$file" </dev/null >/dev/null || ok=
	done
	[ "$ok" ]
}
# Only services that run are restarted. One that fails with the new version is no
# reason to leave the package half installed. Those that enforce go on with the old
# version as long as the new one would not accept the policy.
restart() {
	$invoke try-restart "$1" || echo "genv: $1 did not start again: systemctl status $1" >&2
}
checked=
for unit in genv-controller.service genv-enforce.service; do
	systemctl is-active --quiet $unit || continue
	[ "$checked" ] || if policy_ok; then checked=good; else checked=bad; fi
	if [ $checked = good ]; then
		restart $unit
	else
		echo "genv: $unit was not restarted and still runs the earlier version: correct what is named above, then systemctl restart $unit" >&2
	fi
done
restart genv-host.service
restart genv-guard.service
