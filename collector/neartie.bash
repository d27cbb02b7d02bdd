# bash completion of neartie and neartie-engine: commands, and the options that --help lists.
_neartie_words() { # PROGRAM [COMMAND]
    if [ $# = 1 ]; then
        "$1" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'
    else
        "$1" "$2" --help 2>/dev/null | grep -o -e '--[a-z][a-z0-9-]*=\{0,1\}'
    fi
}
_neartie_kinds() { # PROGRAM: what import reads
    "$1" import --help 2>/dev/null | sed -n 's/^.* neartie import \[OPTION\.\.\.\] \([a-z-]*\) .*/\1/p'
}
_neartie() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_neartie_words "$1")" -- "$word")
    elif [ "$before" = --format ]; then
        mapfile -t COMPREPLY < <(compgen -W "table csv json" -- "$word")
    elif [[ ${COMP_WORDS[1]} == import && $before == --join ]]; then
        mapfile -t COMPREPLY < <(compgen -W "tokens prompt id order" -- "$word")
    elif [[ ${COMP_WORDS[1]} == import && $COMP_CWORD = 2 && $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_neartie_kinds "$1")" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_neartie_words "$1" "${COMP_WORDS[1]}")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _neartie neartie neartie-engine
