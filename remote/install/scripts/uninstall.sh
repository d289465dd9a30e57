# As root: removes what apply.sh made. The right to run genv ends first.
dir=${path%/*}
step() { say step "$1"; }
trap '' HUP INT TERM PIPE
remove() {
  [ -e "$1" ] || [ -L "$1" ] || return 0
  if why=$(rm -f "$1" 2>&1); then say removed "$1"; else
    say why "$why"
    say failed write
    exit 0
  fi
}
if (umask 077; : >>"$lock_file") 2>/dev/null; then # a full or read-only /run is no reason to keep genv
  exec 9>>"$lock_file"
  if command -v flock >/dev/null && ! flock -w 60 9; then
    say why "another installation has the lock $lock_file"
    say failed busy
    exit 0
  fi
fi
# usages lists root's processes of the program, also of one that was replaced or removed, that controllers have started.
# The mount namespace excludes what is at the same path in a container.
usages() {
  for exe in $(find /proc/[0-9]*/exe -maxdepth 0 -lname "$path*"); do
    process=${exe%/exe}
    case $(readlink "$exe") in "$path" | "$path (deleted)") ;; *) continue ;; esac
    [ "$(readlink "$process/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] && grep -q '^Uid:[[:space:]]0[[:space:]]' "$process/status" &&
      case $(tr '\000' ' ' <"$process/cmdline") in *" usage "*) echo "${process##*/}" ;; esac
  done 2>/dev/null
}
end_usages() {
  tries=0 signal=TERM
  while pids=$(usages) && [ -n "$pids" ] && [ $tries -lt 50 ]; do
    # shellcheck disable=SC2086 # a word per process
    [ $((tries % 25)) != 0 ] || kill -s $signal $pids 2>/dev/null
    tries=$((tries + 1))
    [ $tries -lt 25 ] || signal=KILL
    sleep 0.2
  done
}
step lock
[ -z "$rules" ] || remove "$folder/$rules_file"
[ -z "$earlier" ] || remove "$folder/genv"
step sudoers
for shim in docker nvidia-smi; do
  [ -z "$shims" ] || [ "$(readlink "$shims/$shim")" != "../../../bin/genv" ] || remove "$shims/$shim"
done
[ -z "$shims" ] || rmdir "$shims" "${shims%/*}" 2>/dev/null
step shims
if [ -n "$extras" ]; then
  [ "$(readlink "$usual")" != "$path" ] || remove "$usual"
  for file in "$share"/man/man1/genv.1 "$share"/man/man1/genv-*.1 "$share/bash-completion/completions/genv" "$share/zsh/site-functions/_genv" \
    "$share/fish/vendor_completions.d/genv.fish"; do
    if safe "${file%/*}"; then remove "$file"; fi
  done
  rmdir "$share/man/man1" "$share/bash-completion/completions" "$share/bash-completion" "$share/zsh/site-functions" "$share/zsh" "$share/fish/vendor_completions.d" "$share/fish" 2>/dev/null
  [ "$(cat "$tmpfiles" 2>/dev/null)" != "$spares" ] || remove "$tmpfiles"
  all=genv-enforce.service
  [ -z "$purge" ] || all="$all genv-host.socket genv-host.service"
  there=
  for unit in $all; do [ ! -e "$units/$unit" ] || there="$there $unit"; done
  if [ -n "$there" ]; then
    # shellcheck disable=SC2086 # a word per unit
    limited 90 systemctl --no-reload disable --now $there >/dev/null 2>&1
    for unit in $there; do remove "$units/$unit"; done
    systemctl daemon-reload
  fi
  for file in $(shell_files); do
    if grep -qF "$mark" "$file"; then sed -i "\\|$mark\$|d" "$(readlink -f "$file")"; fi
  done
fi
step extras
[ -z "$program" ] || remove "$path"
step binary
end_usages # no other one can start, and none makes the folders again
for file in "$dir"/.genv-install-* "$folder"/.genv-install-*; do remove "$file"; done
if [ -d "$dir" ]; then sync "$dir" 2>/dev/null || sync; fi
home=$(getent passwd "${account:--}" | cut -d : -f 6)
if [ -n "$purge" ]; then
  rm -rf /var/tmp/genv /var/lib/genv /var/log/genv /run/genv
  # shellcheck disable=SC2016 # for the account's shell, which writes its own file
  [ -z "$home" ] || [ -z "$key" ] || limited 10 setpriv --reuid "$(id -u -- "$account")" --regid "$(id -g -- "$account")" --clear-groups sh -c '
    umask 077; cd "$1/.ssh" && grep -vxF "$2" authorized_keys >authorized_keys.genv; mv authorized_keys.genv authorized_keys' sh "$home" "$key" 2>/dev/null
fi
for kept in /var/tmp/genv /var/lib/genv /var/log/genv /etc/genv; do
  [ ! -e "$kept" ] || say kept "$kept"
done
[ -z "$home" ] || say kept "the account $account"
say done
