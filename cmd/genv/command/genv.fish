# Completion of genv for fish: genv completion fish | source

# `genv __complete` prints what to do, and then a candidate per line with its description.
function __genv_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l lines (command genv __complete $words[2..] 2>/dev/null </dev/null)
    switch "$lines[1]"
        case words
            printf '%s\n' $lines[2..]
        case files folders 'program *'
            __fish_complete_path (commandline -ct)
    end
end

complete -c genv -f -a '(__genv_complete)'
