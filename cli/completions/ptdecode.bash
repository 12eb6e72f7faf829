# Completion of ptdecode for bash: commands, and the options that the command's own --help names.
_ptdecode() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=$(ptdecode --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$current")
    return
  fi
  case $current in
    -*)
      words=$(ptdecode "$command" --help 2>/dev/null | grep -oE '(^  |,)--?[A-Za-z][A-Za-z-]*' | tr -d ' ,')
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
  esac
}
complete -o filenames -F _ptdecode ptdecode
