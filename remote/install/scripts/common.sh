LC_ALL=C; export LC_ALL
sudo_path=$PATH
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The first newline ends what a login may have printed.
printf '\n'
say() { printf '%s %s\n' "$token" "$*"; }
have() { command -v "$1" >/dev/null; }
limited() {
  if have timeout; then timeout "$@"; else shift; "$@"; fi
}
# owned says whether root alone may change a file and decides what its folders are.
owned() {
  d=$1
  while [ -n "$d" ]; do
    case $(stat -L -c '%u %A' "$d" 2>/dev/null) in "0 "?????-??-?) ;; *) return 1 ;; esac
    d=${d%/*}
  done
}
