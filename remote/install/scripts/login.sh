# As the login, without sudo: who it is, and which genv is there.
say uid "$(id -u)"
say user "$(id -un)"
say system "$(uname -s)"
say machine "$(uname -m)"
if [ -f "$path" ] && [ -x "$path" ]; then
  say version "$(limited 10 "$path" version 2>/dev/null </dev/null | head -n 1)"
fi
say end
