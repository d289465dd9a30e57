# What eval "$(genv shell --init)" defines in zsh. Comments and words in at
# signs are filled in or dropped by Init. Each function restores zsh's own
# options for itself: the user's may be any.

typeset -gA __genv_how __genv_old

# __genv_save NAME remembers a variable, once: its value, and whether it is set
# and exported.
function __genv_save {
  emulate -L zsh
  [[ -z ${__genv_how[$1]-} ]] || return 0
  __genv_how[$1]=unset
  if (( ${(P)+1} )); then
    __genv_old[$1]=${(P)1}
    __genv_how[$1]=set
    [[ ${(Pt)1} != *-export* ]] || __genv_how[$1]=set-exported
  fi
}

# __genv_restore NAME undoes all that followed __genv_save NAME. Without one (in
# a shell that was started from an active one) the variable goes.
function __genv_restore {
  emulate -L zsh
  case ${__genv_how[$1]-} in
    (set) export "$1=${__genv_old[$1]}"; typeset -g +x "$1" ;;
    (set-exported) export "$1=${__genv_old[$1]}" ;;
    (*) unset "$1" ;;
  esac
  unset "__genv_how[$1]" "__genv_old[$1]"
}

function __genv_set {
  emulate -L zsh
  __genv_save "$1"
  export "$1=$2"
}

function __genv_unset {
  emulate -L zsh
  __genv_save "$1"
  unset "$1"
}

function __genv_path_add {
  emulate -L zsh
  local shims=@SHIMS@
  [[ -n $shims && ":${PATH-}:" != *":$shims:"* ]] || return 0
  __genv_save PATH
  export PATH="$shims${PATH:+:$PATH}"
}

# __genv_path_remove gives PATH back whole if nothing else changed it; otherwise
# it takes away our folder alone.
function __genv_path_remove {
  emulate -L zsh
  local shims=@SHIMS@ rest=":${PATH-}:" old=${__genv_old[PATH]-}
  if [[ -n ${__genv_how[PATH]-} && ${PATH-} == "$shims${old:+:$old}" ]]; then
    __genv_restore PATH
    return 0
  fi
  unset '__genv_how[PATH]' '__genv_old[PATH]'
  [[ -n $shims && $rest == *":$shims:"* ]] || return 0
  rest="${rest%%":$shims:"*}:${rest#*":$shims:"}"
  rest=${rest#:}
  PATH=${rest%:}
}

# __genv_prompt PS1 PREFIX: a shell without a prompt gets none. The prefix takes the place of the one before, wherever
# that is: conda and venv put their own in front. Shells that this one starts, as tmux and screen do, inherit GENV_PROMPT.
function __genv_prompt {
  emulate -L zsh
  local old=${GENV_PROMPT-}
  (( ${+PS1} )) || return 0
  [[ -n $old ]] || old=${__genv_mark-}
  if [[ -n $old && $PS1 == *"$old"* ]]; then
    PS1="${PS1%%"$old"*}$2${PS1#*"$old"}"
  else
    PS1=$2$PS1
  fi
  export GENV_PROMPT=$2
  if [[ -n $2 ]]; then
    typeset -g __genv_mark=$2
  else
    unset GENV_PROMPT
  fi
}

function __genv_prompt_replace {
  emulate -L zsh
  [[ -z ${GENV_PROMPT-} ]] || __genv_prompt "$1" "$2"
}

# __genv_keep puts right, in a shell that inherits an environment and at each prompt, what others have undone: PATH by
# /etc/profile of a login shell, by venv's deactivate and direnv; PS1 by venv and conda, which put an old one back.
function __genv_keep {
  emulate -L zsh
  [[ -z ${GENV_ENVIRONMENT_ID-} ]] || __genv_path_add
  [[ -n ${GENV_PROMPT-} && ${PS1-} == *"$GENV_PROMPT"* ]] || __genv_prompt PS1 "${GENV_PROMPT-}"
  __genv_notices
}

# __genv_notices shows what is unread, on a terminal: when the shell starts, and at prompts while the user's file is
# older than the notices. If that can't be remembered, it does so once.
function __genv_notices {
  [[ -o interactive && -t 1 && -e @NOTICES@ && ${__genv_noted-} != failed &&
    ( -z ${__genv_noted-} || @NOTICES@ -nt @READ@ ) ]] || return 0
  command @EXE@ notices --new 2>/dev/null && __genv_noted=yes || __genv_noted=failed
}

# The program writes code for this shell on descriptor 3; descriptor 4 is the
# user's stdout meanwhile. sysparams, since $$ is not this shell in a subshell.
function genv {
  case ${1-} in
    (activate|deactivate|attach|detach|config) ;;
    (*) [[ "$*" != shell ]] || set -- shell --ok; command @EXE@ "$@"; return ;;
  esac
  emulate -L zsh
  zmodload zsh/system 2>/dev/null
  local code='' rc=1 pid=${sysparams[pid]:-$$}
  {
    code=$(GENV_SHELL_KIND=zsh GENV_SHELL_PID=$pid GENV_SHELL_FD=3 command @EXE@ "$@" 3>&1 >&4 4>&-) && rc=0 || rc=$?
  } 4>&1
  (( rc == 0 )) || return $rc
  eval "$code"
}

function __genv_hook {
  emulate -L zsh
  typeset -ga precmd_functions
  precmd_functions=(${precmd_functions:#__genv_keep} __genv_keep)
}

__genv_hook
__genv_keep
