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

# __genv_prompt PS1 PREFIX: a shell without a prompt gets none. The prefix takes the place of the one before, wherever
# that is: conda and venv put their own in front. Shells that this one starts, as tmux and screen do, inherit GENV_PROMPT.
function __genv_prompt {
  local old=${GENV_PROMPT-}
  [[ -n ${PS1+x} ]] || return 0
  [[ -n $old ]] || old=${__genv_mark-}
  if [[ -n $old && $PS1 == *"$old"* ]]; then
    PS1="${PS1%%"$old"*}$2${PS1#*"$old"}"
  else
    PS1=$2$PS1
  fi
  export GENV_PROMPT=$2
  if [[ -n $2 ]]; then
    __genv_mark=$2
  else
    unset -v GENV_PROMPT
  fi
}

function __genv_prompt_replace {
  [[ -z ${GENV_PROMPT-} ]] || __genv_prompt "$1" "$2"
}

# __genv_keep puts right, in a shell that inherits an environment and at each prompt, what others have undone: PATH by
# /etc/profile of a login shell, by venv's deactivate and direnv; PS1 by venv and conda, which put an old one back.
function __genv_keep {
  [[ -z ${GENV_ENVIRONMENT_ID-} ]] || __genv_path_add
  [[ -n ${GENV_PROMPT-} && ${PS1-} == *"$GENV_PROMPT"* ]] || __genv_prompt PS1 "${GENV_PROMPT-}"
  __genv_notices
}

# __genv_notices shows what is unread, on a terminal: when the shell starts, and at prompts while the user's file is
# older than the notices. If that can't be remembered, it does so once.
function __genv_notices {
  [[ $- == *i* && -t 1 && -e @NOTICES@ && ${__genv_noted-} != failed &&
    ( -z ${__genv_noted-} || @NOTICES@ -nt @READ@ ) ]] || return 0
  command @EXE@ notices --new 2>/dev/null && __genv_noted=yes || __genv_noted=failed
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

if [[ $- == *i* && ${PROMPT_COMMAND-} != *__genv_keep* ]]; then
  # A shell that inherits the variable may lack the function.
  PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND"$'\n'"}! declare -F __genv_keep >/dev/null || __genv_keep"
fi
__genv_keep
