# not_new says why a host isn't one on which root owns the state from the beginning; nothing if it is one.
not_new() {
  if [ ! -e /proc/driver/nvidia/version ]; then
    echo "it has no driver of NVIDIA's"
  elif [ ! -d /run/systemd/system ]; then
    echo "it doesn't run systemd"
  elif [ -e /var/tmp/genv ] || [ -L /var/tmp/genv ]; then
    echo "it has a state folder, /var/tmp/genv"
  else
    old_genv | head -n 1
  fi
}
# old_genv names genv 1.4.3, a Python program, in PATH, among the system's packages of Python, or as a process.
# Of processes it reads only what none of them can make slow.
old_genv() {
  printf '%s\n' "$PATH" | tr : '\n' | while IFS= read -r folder; do
    [ -f "$folder/genv" ] || continue
    case $(head -c 256 "$folder/genv" | head -n 1 | tr -d '\000') in
    '#!'*python*) echo "it has genv 1.4.3, $folder/genv" ;;
    esac
  done
  for folder in /usr/lib/python3*/*-packages/genv /usr/lib64/python3*/*-packages/genv \
    /usr/local/lib/python3*/*-packages/genv /usr/local/lib64/python3*/*-packages/genv; do
    if [ -d "$folder" ]; then echo "it has genv 1.4.3, $folder"; fi
  done
  for process in /proc/[0-9]*; do
    if IFS= read -r name <"$process/comm" && [ "$name" = genv ]; then
      case $(readlink "$process/exe") in
      */python*) echo "genv 1.4.3 runs there, as process ${process##*/}" ;;
      esac
    fi
  done 2>/dev/null
}
