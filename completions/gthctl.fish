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
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "policy" -d 'Look at the live policy, and change it'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "trace" -d 'Show which tasks handle GTP packets, and on which CPUs'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s c -l config -d 'The config file' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s p -l policy -d 'The policy file, in place of the one that the config file names' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l stats -d 'Print the scheduler\'s counters every SECONDS, from 1 up; they are printed once at the end in any case' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l debug -d 'Log more, as `debug: true` in the config file does'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "status" -d 'Show what is in force since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "rollback" -d 'Return to the policy that was in force before'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check show status explain rollback help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -l dry-run -d 'Show what would change and change nothing'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s y -l yes -d 'Do not ask; needed where standard input or output is no terminal'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -l dry-run -d 'Show what would change and change nothing'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s y -l yes -d 'Do not ask; needed where standard input or output is no terminal'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show what is in force since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "rollback" -d 'Return to the policy that was in force before'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s f -l function -d 'Any function of the kernel or a module, in place of a data plane' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l pid -d 'Only this process or thread' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l cpu -d 'Only these CPUs, as a list: 0-3,8' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l interval -d 'How often to show what was counted' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l duration -d 'End after this time' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s o -l output -d 'A table on a terminal, otherwise lines; or JSON, one object a line' -r -f -a "table\t''
lines\t''
json\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l color -d 'When to use colour; auto means on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l stages -d 'Also the functions where a packet\'s time goes: look-up, QoS, route, header'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l wait -d 'Wait until the data plane\'s module is loaded'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l once -d 'End after one interval'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l events -d 'Single packets with their times in ns, not counts'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l kprobe -d 'Kprobes also where there is BTF; slower, but the module can be unloaded'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l suggest -d 'Watch silently, for 10 s or --duration, then print a policy for what was seen'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy trace help" -f -a "run" -d 'Load the scheduler and run until stopped'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy trace help" -f -a "policy" -d 'Look at the live policy, and change it'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy trace help" -f -a "trace" -d 'Show which tasks handle GTP packets, and on which CPUs'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy trace help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "status" -d 'Show what is in force since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "rollback" -d 'Return to the policy that was in force before'
