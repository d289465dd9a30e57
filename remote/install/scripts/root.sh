# As root: "here" if the program that is to act is at $path; any genv there if $sum is empty.
if [ -f "$path" ] && [ ! -L "$path" ] && [ -x "$path" ] && owned "$path"; then
  case $sum in '' | "$(sha256sum <"$path" | cut -d ' ' -f 1)") say here ;; esac
fi
if have sha256sum; then say sha256sum; fi
say end
