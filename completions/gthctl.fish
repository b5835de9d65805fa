# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gthctl_global_optspecs
    string join \n color= h/help V/version
end

function __fish_gthctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gthctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gthctl_using_subcommand
    set -l cmd (__fish_gthctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gthctl -n "__fish_gthctl_needs_command" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_needs_command" -s V -l version -d 'Print version'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "run" -d 'Load the scheduler and run until stopped'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s c -l config -d 'The config file' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s p -l policy -d 'The policy file, in place of the one that the config file names' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l stats -d 'Print the scheduler\'s counters every SECONDS, from 1 up; they are printed once at the end in any case' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l debug -d 'Log more, as `debug: true` in the config file does'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run help" -f -a "run" -d 'Load the scheduler and run until stopped'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
