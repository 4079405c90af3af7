# Completion of overnight for bash: asks the program for candidates.
_overnight() {
    local IFS=$'\013' line=$COMP_LINE words=() word at
    # bash takes `:` and `=` for ends of words; names such as `builtin:fix-tests` are joined again.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        local rest=${line#*"$word"} touches=
        [[ $at -eq 0 || $line == [[:blank:]]* ]] || touches=1
        if [[ $at -eq $COMP_CWORD && $word != [:=]* && ${BASH_VERSINFO[0]} -ge 4 ]]; then
            word=$2
        fi
        if [[ -n $touches && ( $word == [:=]* || ${COMP_WORDS[at - 1]} == *[:=] ) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=$rest
    done
    local index=$((${#words[@]} - 1)) space=true
    # What bash replaces is `$2`; what is joined before it stands on the line already.
    local before=${words[index]%"$2"}
    compopt +o nospace 2> /dev/null && space=false
    COMPREPLY=( $( \
        _CLAP_IFS="$IFS" \
        _CLAP_COMPLETE_INDEX="$index" \
        _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
        _CLAP_COMPLETE_SPACE="$space" \
        COMPLETE="bash" \
        overnight -- "${words[@]}" \
    ) )
    if [[ $? != 0 ]]; then
        unset COMPREPLY
        return
    fi
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    if [[ $space == false && ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if [[ ${BASH_VERSINFO[0]} -eq 4 && ${BASH_VERSINFO[1]} -ge 4 || ${BASH_VERSINFO[0]} -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _overnight overnight
else
    complete -o nospace -o bashdefault -F _overnight overnight
fi
