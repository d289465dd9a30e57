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
    say why "another installation holds the lock $lock_file"
    say failed busy
    exit 0
  fi
fi
step lock
[ -z "$rules" ] || remove "$folder/$rules_file"
[ -z "$earlier" ] || remove "$folder/genv"
step sudoers
for shim in docker nvidia-smi; do
  [ -z "$shims" ] || [ "$(readlink "$shims/$shim")" != "../../../bin/genv" ] || remove "$shims/$shim"
done
[ -z "$shims" ] || rmdir "$shims" "${shims%/*}" 2>/dev/null
step shims
[ -z "$program" ] || remove "$path"
step binary
for file in "$dir"/.genv-install-* "$folder"/.genv-install-*; do remove "$file"; done
if [ -d "$dir" ]; then sync "$dir" 2>/dev/null || sync; fi
for kept in /var/tmp/genv /var/lib/genv /var/log/genv; do
  [ ! -e "$kept" ] || say kept "$kept"
done
say done
