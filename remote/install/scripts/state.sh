# As root, with genv in its place: gives the state to root's service ($state is root), gives it back to all users
# (shared), or has the service that is there continue with this genv (empty).
step() { say step "$1"; }
fail() {
  say why "$(printf '%s' "$1" | tr '\n' ' ' | head -c 1000)"
  say failed state
  exit 0
}
trap '' HUP INT TERM PIPE
all='genv-host.socket genv-host.service'
if [ "$state" = shared ]; then
  # shellcheck disable=SC2086 # a word per unit
  why=$(limited 90 systemctl --no-reload disable --now $all 2>&1) || [ ! -e "$units/genv-host.service" ] || fail "$why"
  step stopped
  why=$(limited 60 "$path" host handover 2>&1 </dev/null) || fail "$why"
  if [ -e "$units/genv-host.socket" ] || [ -e "$units/genv-host.service" ]; then
    rm -f "$units/genv-host.socket" "$units/genv-host.service"
    systemctl daemon-reload
  fi
  say done
  exit 0
fi
put() {
  same "$units/$1" "$2" || (umask 022; printf '%s' "$2" >"$units/.genv-install-$1" && mv -fT "$units/.genv-install-$1" "$units/$1") 2>&1
}
why=$(put genv-host.socket "$socket" && put genv-host.service "$service") || fail "$why"
# shellcheck disable=SC2086 # a word per unit
why=$(reload $all 2>&1) || fail "$why"
step units
restart=try-restart
if [ "$state" = root ]; then
  restart=restart
  # shellcheck disable=SC2086 # a word per unit
  why=$(systemctl enable $all 2>&1) || fail "$why"
fi
why=$(limited 90 systemctl $restart genv-host.service 2>&1) || fail "$why"
say done
