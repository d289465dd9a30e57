LC_ALL=C; export LC_ALL
sudo_path=$PATH
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The first newline ends what a login may have printed.
printf '\n'
say() { printf '%s %s\n' "$token" "$*"; }
limited() {
  if command -v timeout >/dev/null; then timeout "$@"; else shift; "$@"; fi
}
same() { [ "$(cat "$1" 2>/dev/null; echo .)" = "$2." ]; }
# outdated says whether systemd has loaded other units than those that are there. Containers can lose their GPUs when it
# loads all units again, so reload does that only then.
outdated() { systemctl show --property=LoadState,NeedDaemonReload "$@" 2>/dev/null | grep -q '=not-found$\|=yes$'; }
reload() { ! outdated "$@" || systemctl daemon-reload; }
# Root alone can open this file. A folder would not do: any user can open one and lock it.
lock_file=/run/genv-install.lock
