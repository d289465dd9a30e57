LC_ALL=C; export LC_ALL
sudo_path=$PATH
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The first newline ends what a login may have printed.
printf '\n'
say() { printf '%s %s\n' "$token" "$*"; }
limited() {
  if command -v timeout >/dev/null; then timeout "$@"; else shift; "$@"; fi
}
# same says whether a unit needn't be loaded: containers can lose their GPUs when systemd loads all units again.
same() { [ "$(cat "$1" 2>/dev/null; echo .)" = "$2." ]; }
# Root alone can open this file. A folder would not do: any user can open one and lock it.
lock_file=/run/genv-install.lock
