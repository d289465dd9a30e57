# Completion of genv for bash: source <(genv completion bash)

# `genv __complete` prints what to do, and then a candidate per line with its description.
_genv() {
  local line=${COMP_LINE:0:COMP_POINT} word rest break
  local -a words lines
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=("")
  word=${words[-1]}
  words=("${words[@]//[\'\"]/}")
  rest=${words[-1]}
  if [[ $word != [\'\"]* ]]; then # else readline replaces all that is quoted, and not what follows these
    for break in = :; do
      [[ $COMP_WORDBREAKS != *"$break"* ]] || rest=${rest##*"$break"}
    done
    [[ $COMP_WORDBREAKS != *@* || $rest != *@* ]] || rest=@${rest##*@}
  fi
  mapfile -t lines < <(command genv __complete "${words[@]:1}" 2>/dev/null </dev/null)
  COMPREPLY=("${lines[@]:1}")
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  COMPREPLY=("${COMPREPLY[@]#"${words[-1]%"$rest"}"}")
  case ${lines[0]-} in
    "program $((${#words[@]} - 1))") mapfile -t COMPREPLY < <(compgen -c -- "${words[-1]}") ;;
    files | program*) compopt -o default ;;
    folders) compopt -o dirnames ;;
  esac
  return 0
}

complete -o nosort -F _genv genv 2>/dev/null || complete -F _genv genv
