#compdef genv
# Completion of genv for zsh: source <(genv completion zsh), after compinit; or this file as
# _genv in a folder of fpath.

# `genv __complete` prints what to do, how much of the word stays as it is, and then a
# candidate with its description per line, escaped for _describe.
_genv() {
  local -a lines action
  lines=("${(@f)$(command genv __complete zsh "${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX" '' 2>/dev/null </dev/null)}")
  action=(${(s: :)lines[1]})
  shift lines
  local -i stays=$(( ${action[2]-0} - ${#QIPREFIX} ))
  (( stays > 0 )) || stays=0
  case ${action[1]-} in
    (files) compset -p $stays; _files ;;
    (folders) compset -p $stays; _files -/ ;;
    (program) shift ${action[2]} words; (( CURRENT -= ${action[2]} )); _normal ;;
    (words)
      (( ${#lines} )) || return 1
      compset -p $stays
      case ${action[3]}${compstate[quote]} in
        (nospace) _describe genv lines -S '' ;;
        (list) _describe genv lines -S ' ' -r ', ' ;;
        (*) _describe genv lines ;;
      esac
      ;;
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
