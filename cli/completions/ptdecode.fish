# Completion of ptdecode for fish: commands, and the options that the command's own --help names.
function __ptdecode_commands
    ptdecode --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1\t\2/p'
end
function __ptdecode_options
    set -l words (commandline -opc)
    ptdecode $words[2] --help 2>/dev/null | grep -oE '(^  |,)--?[A-Za-z][A-Za-z-]*' | tr -d ' ,'
end
complete -c ptdecode -n __fish_use_subcommand -f -a '(__ptdecode_commands)'
complete -c ptdecode -n __fish_use_subcommand -f -a '--help --version'
complete -c ptdecode -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__ptdecode_options)'
