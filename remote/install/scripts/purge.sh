# As root: why nothing of genv's may be removed from the host yet. It changes nothing.
if [ -x "$path" ]; then
  active=$(limited 30 "$path" envs --format csv --no-header 2>&1 </dev/null) || say refused "genv does not say which environments are active: $active"
  [ -z "$active" ] || say refused "environments are active: $(printf "%s\n" "$active" | wc -l)"
elif [ -e /var/tmp/genv ]; then
  say refused "genv is not there to say which environments are active; install it first"
fi
old_genv | head -n 1 | while IFS= read -r old; do say refused "$old"; done
say end
