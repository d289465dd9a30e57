#compdef genv
# Completion of genv for zsh: source <(genv completion zsh), after compinit; or this file as
# _genv in a folder of fpath.

# `genv __complete` prints what to do, and then a candidate per line with its description.
_genv() {
  local -a lines values words_before
  words_before=("${(@Q)words[2,CURRENT-1]}")
  lines=("${(@f)$(command genv __complete "${words_before[@]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}")
  local action=${lines[1]}
  shift lines
  values=("${(@)lines%%$'\t'*}") lines=("${(@)lines/$'\t'/ -- }")
  case $action in
    (files) compset -P '-*='; _files ;;
    (folders) compset -P '-*='; _files -/ ;;
    (program*) shift ${action#* } words; (( CURRENT -= ${action#* } )); _normal ;;
    (words) compadd -l -d lines -a values ;;
    (*) return 1 ;;
  esac
}

if [[ ${funcstack[1]-} == _genv ]]; then
  _genv "$@"
elif (( ${+functions[compdef]} )); then
  compdef _genv genv
else
  print -u2 'genv: run `autoload -Uz compinit && compinit` before source <(genv completion zsh)'
fi
