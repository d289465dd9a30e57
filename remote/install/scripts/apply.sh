# As root, with the program as the rest of stdin. Until "commit" nothing that is in use
# changes; then whole files are renamed into their places. $new and the other names are
# of this run alone, and ignored by sudo, since they contain a dot.
umask 077
dir=${path%/*}
new=$dir/.genv-install-$run
old=$dir/.genv-install-$run.old
rules=$folder/.genv-install-$run
old_rules=$folder/.genv-install-$run.old
step() { say step "$1"; }
clean() { rm -f "$new" "$old" "$rules" "$rules.earlier" "$old_rules" "$shims/.genv-install-$run"; }
fail() {
  say why "$(printf '%s' "$2" | tr '\n' ' ' | head -c 1000)${made:+; the account $account was made, and stays}"
  say failed "$1"
  exit 0
}
trap clean EXIT
trap 'exit 1' HUP INT TERM PIPE
have() { command -v "$1" >/dev/null; }
sum() { sha256sum <"$1" | cut -d ' ' -f 1; }
# A file is flushed alone where sync can do so: flushing all may take minutes.
flush() { sync "$@" 2>/dev/null || sync; }

step begin
why=$( (umask 022; mkdir -p "$dir") 2>&1) || fail write "$why"
# The lock is held while files are made, removed or renamed. Temporary files are
# locked too, so that another installation can tell them from those of one that died.
lock() {
  if have flock; then flock -w 60 9 || fail busy "another installation has the lock $lock_file"; fi
}
unlock() {
  if have flock; then flock -u 9; fi
}
why=$( (: >>"$lock_file") 2>&1) || fail write "$why"
exec 9>>"$lock_file"
lock
if [ -n "$program" ]; then
  why=$( (set -C; : >"$new") 2>&1) || fail write "$why"
  exec 8<"$new"
  if have flock; then flock -n 8; fi
fi
if [ -n "$content" ]; then
  why=$( (set -C; : >"$rules") 2>&1) || fail write "$why"
  exec 7<"$rules"
  if have flock; then flock -n 7; fi
fi
unlock
if [ -n "$program" ]; then
  step upload
  why=$( (limited "$seconds" cat >>"$new") 2>&1) || fail write "$why"
  [ "$(sum "$new")" = "$program" ] || fail checksum "$(wc -c <"$new") bytes arrived"
  step checksum
  { chown 0:0 "$new" && chmod 0755 "$new"; } || fail write "cannot change the mode of $new"
  why=$(limited 30 "$new" version 2>&1 </dev/null) || fail run "$why"
  say version "$(printf '%s\n' "$why" | head -n 1)"
  flush "$new"
  step run
fi
if [ -n "$content" ]; then
  why=$( (printf '%s' "$content" >"$rules") 2>&1) || fail write "$why"
  chmod 0440 "$rules"
  why=$(visudo -cf "$rules" 2>&1 </dev/null) || fail visudo "$why"
  visudo -c >/dev/null 2>&1 </dev/null && valid=yes
  flush "$rules"
  step visudo
fi

lock
now=; if [ -f "$path" ]; then now=$(sum "$path"); fi
[ "$now" = "$before" ] || [ "$now" = "$program" ] || fail changed "$path has the checksum ${now:-of no file}"
if [ -n "$content" ]; then
  now=; if [ -e "$folder/$rules_file" ]; then now=$(sum "$folder/$rules_file"); fi
  [ "$now" = "$rules_before" ] || [ "$now" = "$(sum "$rules")" ] || fail changed "$folder/$rules_file has other lines now"
fi
if [ -n "$earlier" ] && [ -e "$folder/genv" ]; then
  [ "$(sum "$folder/genv")" = "$earlier" ] || fail changed "$folder/genv has other lines now"
fi
for file in "$dir"/.genv-install-* "$shims"/.genv-install-* "$folder"/.genv-install-*; do
  case $file in *-"$run"*) continue ;; esac
  if [ -L "$file" ]; then rm -f "$file"; continue; fi
  [ -e "$file" ] || continue
  if have flock && flock -n 6 2>/dev/null; then rm -f "$file"; fi 6<"$file"
done
step lock

# The account writes its own file: root follows no link in its home. It has no password, and a shell, with which
# sshd runs what a controller asks.
make_account() {
  id -u -- "$account" >/dev/null 2>&1 && return
  group=--user-group
  if getent group "$account" >/dev/null; then group="--gid $account"; fi
  # shellcheck disable=SC2086 # one word, or two
  useradd --system $group --create-home --shell /bin/sh --password '*' --comment 'genv controller' "$account"
}
made=
# shellcheck disable=SC2016 # for the account's shell
authorize() {
  home=$(getent passwd "$account" | cut -d : -f 6)
  limited 10 setpriv --reuid "$(id -u -- "$account")" --regid "$(id -g -- "$account")" --clear-groups sh -c '
    umask 077
    cd "$1" && mkdir -p .ssh && { [ -z "$(tail -c 1 .ssh/authorized_keys 2>/dev/null)" ] || echo >>.ssh/authorized_keys; } &&
      printf "%s\n" "$2" >>.ssh/authorized_keys' sh "$home" "$key"
}
if [ -n "$key" ]; then
  id -u -- "$account" >/dev/null 2>&1 || made=yes
  why=$(make_account 2>&1) || { made=; fail account "$why"; }
  why=$(authorize 2>&1) || fail account "$why"
  step account
fi

# From here on a lost connection ends nothing.
trap '' HUP INT TERM PIPE
undo() {
  if [ -n "${replaced-}" ]; then
    if [ -e "$old" ]; then mv -fT "$old" "$path"; else rm -f "$path"; fi
  fi
  if [ -n "${ruled-}" ]; then
    if [ -e "$old_rules" ]; then mv -fT "$old_rules" "$folder/$rules_file"; else rm -f "$folder/$rules_file"; fi
    if [ -e "$rules.earlier" ]; then mv -fT "$rules.earlier" "$folder/genv"; fi
  fi
  fail "$@"
}
if [ -n "$program" ]; then
  if [ -e "$path" ]; then ln "$path" "$old" || fail write "cannot link $path"; fi
  replaced=yes
  mv -fT "$new" "$path" || undo write "cannot rename $new"
  step binary
  why=$(limited 30 "$path" version 2>&1 </dev/null) || undo run "$why"
fi
if [ -n "$content" ]; then
  if [ -e "$folder/$rules_file" ]; then ln "$folder/$rules_file" "$old_rules" || undo write "cannot link $folder/$rules_file"; fi
  ruled=yes
  mv -fT "$rules" "$folder/$rules_file" || undo write "cannot rename $rules"
  if [ -n "$earlier" ] && [ -e "$folder/genv" ]; then mv -fT "$folder/genv" "$rules.earlier" || undo write "cannot rename $folder/genv"; fi
  step sudoers
  if [ -n "${valid-}" ]; then why=$(visudo -c 2>&1 </dev/null) || undo visudo "$why"; fi
fi
if [ -n "$link" ]; then
  (umask 022; mkdir -p "$shims") || undo write "cannot make $shims"
  for shim in docker nvidia-smi; do
    ln -s ../../../bin/genv "$shims/.genv-install-$run" && mv -fT "$shims/.genv-install-$run" "$shims/$shim" ||
      undo write "cannot make $shims/$shim"
  done
  step shims
fi
flush "$dir" "$folder"
step sync
say done
