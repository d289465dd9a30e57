# Completion of genv for bash: source <(genv completion bash)

# `genv __complete` prints what to do, and then a candidate per line, quoted for this line.
_genv() {
  local answer action at rest i
  local -a lines
  answer=$(command genv __complete bash "${COMP_LINE:0:COMP_POINT}" "${COMP_WORDBREAKS-}" 2>/dev/null </dev/null)
  COMPREPLY=()
  [[ -n $answer ]] || return 0
  mapfile -t lines <<<"$answer"
  action=${lines[0]}
  COMPREPLY=("${lines[@]:1}")
  case $action in
    nospace) compopt -o nospace 2>/dev/null ;;
    files) compopt -o default 2>/dev/null ;;
    folders) compopt -o dirnames 2>/dev/null ;;
    program\ *)
      at=${action#* } rest=${COMP_LINE:0:at}
      for ((i = 0; i < COMP_CWORD; i++)); do
        [[ $rest == *"${COMP_WORDS[i]}"* ]] || break
        rest=${rest#*"${COMP_WORDS[i]}"}
      done
      if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$i"
      elif declare -F _command_offset >/dev/null; then
        _command_offset "$i"
      elif ((i == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[i]}")
      else
        compopt -o default 2>/dev/null
      fi
      ;;
  esac
  return 0
}

complete -o nosort -F _genv genv 2>/dev/null || complete -F _genv genv
