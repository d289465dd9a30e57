# What eval "$(genv shell --init)" defines in bash. Comments and words in at
# signs are filled in or dropped by Init. No assumption on the user's options:
# errexit, nounset, allexport and noglob may be on.

# __genv_save NAME remembers a variable, once: its value, and whether it is set
# and exported.
function __genv_save {
  local how="__genv_how_$1" old="__genv_old_$1" attributes
  [[ -z ${!how-} ]] || return 0
  attributes=$(declare -p "$1" 2>/dev/null) || attributes=
  attributes=${attributes#declare -}
  attributes=${attributes%%[[:space:]]*}
  if [[ -n ${!1+x} ]]; then
    printf -v "$old" %s "${!1}"
    printf -v "$how" set
  else
    printf -v "$how" unset
  fi
  [[ $attributes != *x* ]] || printf -v "$how" %s "${!how}-exported"
}

# __genv_restore NAME undoes all that followed __genv_save NAME. Without one (in
# a shell that was started from an active one) the variable goes.
function __genv_restore {
  local how="__genv_how_$1" old="__genv_old_$1"
  case ${!how-} in
    set) export -n "$1=${!old-}" ;;
    set-exported) export "$1=${!old-}" ;;
    unset-exported) unset -v "$1"; export "$1" ;;
    *) unset -v "$1" ;;
  esac
  unset -v "$how" "$old"
}

function __genv_set {
  __genv_save "$1"
  export "$1=$2"
}

function __genv_unset {
  __genv_save "$1"
  unset -v "$1"
}

function __genv_path_add {
  local shims=@SHIMS@
  [[ -n $shims && ":${PATH-}:" != *":$shims:"* ]] || return 0
  __genv_save PATH
  export PATH="$shims${PATH:+:$PATH}"
}

# __genv_path_remove gives PATH back whole if nothing else changed it; otherwise
# it takes away our folder alone.
function __genv_path_remove {
  local shims=@SHIMS@ rest=":${PATH-}:"
  if [[ -n ${__genv_how_PATH-} && ${PATH-} == "$shims${__genv_old_PATH:+:$__genv_old_PATH}" ]]; then
    __genv_restore PATH
    return 0
  fi
  unset -v __genv_how_PATH __genv_old_PATH
  [[ -n $shims && $rest == *":$shims:"* ]] || return 0
  rest="${rest%%":$shims:"*}:${rest#*":$shims:"}"
  rest=${rest#:}
  PATH=${rest%:}
}

# __genv_prompt PS1 PREFIX: a shell without a prompt gets none. Shells that this one
# starts, as tmux and screen do, inherit the prefix, and get it at the end of this file.
function __genv_prompt {
  [[ -n ${PS1+x} ]] || return 0
  PS1=$2${PS1#"${GENV_PROMPT-}"}
  export GENV_PROMPT=$2
  [[ -n $2 ]] || unset -v GENV_PROMPT
}

function __genv_prompt_replace {
  [[ -z ${GENV_PROMPT-} ]] || __genv_prompt "$1" "$2"
}

# The program writes code for this shell on descriptor 3; descriptor 4 is the
# user's stdout meanwhile. BASHPID, since $$ is not this shell in a subshell.
function genv {
  case ${1-} in
    activate | deactivate | attach | detach | config) ;;
    *) [[ "$*" != shell ]] || set -- shell --ok; command @EXE@ "$@"; return ;;
  esac
  local code='' rc=1 pid=${BASHPID:-$$} allexport=''
  {
    code=$(GENV_SHELL_KIND=bash GENV_SHELL_PID=$pid GENV_SHELL_FD=3 command @EXE@ "$@" 3>&1 >&4 4>&-) && rc=0 || rc=$?
  } 4>&1
  [[ $rc == 0 ]] || return "$rc"
  [[ $- != *a* ]] || allexport=1
  set +a
  eval "$code"
  [[ -z $allexport ]] || set -a
}

__genv_prompt_replace PS1 "${GENV_PROMPT-}"
