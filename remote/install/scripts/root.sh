# As root: "here" if the program that is to act is at $path; any genv there if $sum is empty.
if [ -f "$path" ] && [ ! -L "$path" ] && [ -x "$path" ] && owned "$path"; then
  case $sum in '' | "$(sha256sum <"$path" | cut -d ' ' -f 1)") say here ;; esac
fi
for tool in gzip sha256sum; do
  if have $tool; then say $tool; fi
done
say end
