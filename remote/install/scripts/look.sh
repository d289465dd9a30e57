# As root: what decides whether genv can be installed at $path. It changes nothing.
found=$(PATH=$sudo_path; command -v genv)
[ "$(readlink "$found")" != "$path" ] || found=$path # the link in /usr/bin
say found "$found"
dir=${path%/*}
if [ -L "$path" ]; then
  say link "$(readlink "$path")"
elif [ -f "$path" ]; then
  say file "$(sha256sum <"$path" | cut -d ' ' -f 1)"
elif [ -e "$path" ]; then
  say other
fi
way() {
  d=$2
  while :; do
    [ ! -e "${d:-/}" ] || say "$1" "$(stat -L -c '%u %a' "${d:-/}") ${d:-/}"
    [ -n "$d" ] || break
    d=${d%/*}
  done
}
way folder "$dir"
way shims-folder "$shims"
package() {
  [ -e "$1" ] || return
  for file in "$1" "$(readlink -f "$1")"; do
    if owner=$(dpkg -S "$file" 2>/dev/null); then
      say package "${owner%%:*} $1"
      return
    elif owner=$(rpm -qf --qf '%{NAME}' "$file" 2>/dev/null); then
      say package "$owner $1"
      return
    fi
  done
}
package "$path"
[ "$found" = "$path" ] || package "$found"
for tool in sha256sum visudo mv ln; do
  command -v $tool >/dev/null || say missing $tool
done
[ -d "$folder" ] && say rules-folder "$(stat -L -c '%u %a' "$folder")"
rules() {
  [ -L "$folder/$1" ] && say "$2-link"
  [ -e "$folder/$1" ] || return
  say "$2-file" "$(sha256sum <"$folder/$1" | cut -d ' ' -f 1)"
  head -c 65536 "$folder/$1" | while IFS= read -r line || [ -n "$line" ]; do
    say "$2" "$line"
  done
}
rules "$rules_file" rule
rules genv old-rule
say sudo-path "$(sudo -n printenv PATH 2>/dev/null </dev/null || { [ -z "${SUDO_USER-}" ] || printf "%s" "$sudo_path"; })"
if [ -n "$account" ]; then say account "$(id -u -- "$account" 2>/dev/null)"; fi
if [ -n "$key" ]; then
  keys=$(getent passwd "$account" | cut -d : -f 6)/.ssh/authorized_keys
  if [ -f "$keys" ] && limited 5 grep -qxF "$key" "$keys"; then say key; fi
  sshd=$(limited 5 "$(command -v sshd || echo /usr/sbin/sshd)" -T -C "user=$account,host=localhost,addr=127.0.0.1" 2>/dev/null)
  # refuses says so of a list of sshd_config: one that allows, and has none of the names that follow, or one that denies,
  # and has one of them. What a list allows or denies to some machines may hold for this one, or not.
  refuses() {
    option=$1 patterns=$(printf '%s\n' "$sshd" | sed -n "s/^$(echo "$1" | tr A-Z a-z) //p") has=
    shift
    for name do
      for pattern in $patterns; do
        case $option$pattern in Deny*@*) continue ;; esac
        # shellcheck disable=SC2254 # it is a pattern
        case $name in ${pattern%%@*}) has=yes ;; esac
      done
    done
    case $option in
    Allow*) [ -z "$patterns" ] || [ -n "$has" ] || say ssh-refuses "$option" ;;
    Deny*) [ -z "$has" ] || say ssh-refuses "$option" ;;
    esac
  }
  set -f
  groups=$(id -Gn -- "$account" 2>/dev/null || echo "$account")
  refuses AllowUsers "$account"
  refuses DenyUsers "$account"
  # shellcheck disable=SC2086 # words
  refuses AllowGroups $groups
  # shellcheck disable=SC2086 # words
  refuses DenyGroups $groups
  set +f
fi
say not-new "$(not_new)"
[ ! -e /var/lib/genv/host/owner.json ] || say owned
[ ! -d /run/systemd/system ] || say systemd
for unit in genv-host.socket genv-host.service; do
  [ ! -f "$units/$unit" ] || say unit "$(sha256sum <"$units/$unit" | cut -d ' ' -f 1)$(! outdated "$unit" || echo ', not loaded')"
done
linked=yes
for shim in docker nvidia-smi; do
  [ "$(readlink "$shims/$shim")" = "../../../bin/genv" ] || linked=
done
[ -z "$linked" ] || say shims
lacking | while IFS= read -r what; do say lacks "$what"; done
for file in "$dir"/.genv-install-* "$shims"/.genv-install-* "$folder"/.genv-install-*; do
  [ ! -e "$file" ] || say leftover "$file"
done
say end
