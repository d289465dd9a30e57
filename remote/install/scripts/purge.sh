# As root: why nothing of genv's may be removed from the host yet. It changes nothing.
if [ -x "$path" ]; then
  active=$(limited 30 "$path" envs --format csv --no-header 2>&1 </dev/null) || say refused "genv does not say which environments are active: $active"
  [ -z "$active" ] || say refused "environments are active: $(printf "%s\n" "$active" | wc -l)"
else # an environment is active as long as one of its processes, or of its Jupyter kernels, which genv alone can find
  state() {
    for file in /var/tmp/genv/envs.json /var/lib/genv/host/envs.json; do
      [ -f "$file" ] && [ ! -L "$file" ] && limited 10 head -c 10000000 "$file" | tr -d '[:space:]'
    done
  }
  state | grep -o '"pids":\[[0-9,]*\]' | tr -c '0-9' '\n' | while read -r pid; do # those without a program are the kernel's
    [ -z "$pid" ] || [ -z "$(readlink "/proc/$pid/exe")" ] || say refused "an environment has the process $pid, which runs"
  done
  ! state | grep -q '"kernel_ids":\["' || say refused "an environment has a Jupyter kernel, which may run"
fi
old_genv | head -n 1 | while IFS= read -r old; do say refused "$old"; done
say end
