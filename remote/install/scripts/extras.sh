# What a host has besides the program, if $extras says so.
share=${path%/bin/genv}/share
usual=/usr/bin/genv # which cron finds
mark='# by genv remote install --shell-setup'
tmpfiles=/etc/tmpfiles.d/genv-state.conf # one of the package's name would replace it; systemd-tmpfiles removes what is old from /var/tmp
spares='x /var/tmp/genv'
# safe says whether root alone decides what a folder is.
safe() {
  d=$1
  while [ -n "$d" ]; do
    [ ! -e "$d" ] || [ -n "$(find -L "$d" -maxdepth 0 -user 0 ! -perm /022)" ] || return 1
    d=${d%/*}
  done
}
new() { [ -n "$again" ] || [ ! -e "$1" ]; }
shell_files() {
  for file in /etc/bash.bashrc /etc/bashrc /etc/zsh/zshrc /etc/zshrc; do [ ! -f "$file" ] || echo "$file"; done
}
# lacking prints a line for each thing that isn't there; with $again also for those that come from the program.
lacking() {
  [ -n "$extras" ] || return 0
  if [ "$share" != "$path/share" ] && new "$share/bash-completion/completions/genv" && safe "$share/man/man1" &&
    safe "$share/bash-completion/completions" && safe "$share/zsh/site-functions" && safe "$share/fish/vendor_completions.d"; then
    echo "man pages and completion below $share"
  fi
  if [ -d /run/systemd/system ] && { new "$units/genv-enforce.service" || outdated genv-enforce.service; }; then echo "genv-enforce.service, for a machine alone; it is not enabled"; fi
  if [ -d /run/systemd/system ] && [ -d "${tmpfiles%/*}" ] && [ ! -e "$tmpfiles" ] && [ ! -e /usr/lib/tmpfiles.d/genv.conf ]; then echo "$tmpfiles, so that the state is kept"; fi
  if [ "$path" != "$usual" ] && [ ! -e "$usual" ] && [ ! -L "$usual" ] && [ -w "${usual%/*}" ]; then echo "a link at $usual"; fi
  [ -n "$shell_setup" ] || return 0
  for file in $(shell_files); do
    grep -qF "$mark" "$file" || echo "genv in the shells of all users, by $file"
  done
}
