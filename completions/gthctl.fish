# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gthctl_global_optspecs
    string join \n color= wide h/help V/version
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

complete -c gthctl -n "__fish_gthctl_needs_command" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_needs_command" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_needs_command" -s V -l version -d 'Print version'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "run" -d 'Load the scheduler and run until stopped'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "policy" -d 'Show and change the live policy'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "status" -d 'Show on one screen whether gthctl does its work'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "doctor" -d 'Check the machine before anything is loaded'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "metrics" -d 'Print the running gthctl\'s metrics for Prometheus'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "top" -d 'Show live what the scheduler does'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "test" -d 'Measure round trips to a user plane, idle and under load'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "trace" -d 'Show which tasks handle GTP packets, and on which CPUs'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "irq" -d 'See and place the interrupts of NICs'
complete -c gthctl -n "__fish_gthctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s c -l config -d 'The config file [default: /etc/gthctl/config.yaml, if it exists]' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s p -l policy -d 'The policy file, instead of the one in the config file' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l stats -d 'Print the scheduler\'s counters every SECONDS (1 or more); they are always printed once at the end' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l metrics -d 'Serve metrics for Prometheus at http://ADDRESS:PORT/metrics; with a port alone, for this machine only (127.0.0.1). They are neither encrypted nor protected: see gthctl-metrics(1)' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l metrics-compat -d 'Also serve the metrics of pods by the names of another program; implies --pod-counters' -r -f -a "gthulhu\t'gthulhu_pod_..., as Gthulhu\'s monitor exports them'"
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l gtp-time -d 'Also measure how long GTP packets take in a kernel module, for rules with `gtp`: a second probe at each packet'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l pod-counters -d 'Also count what the tasks of each pod of this Kubernetes node do, for the metrics: run and waiting time, preemptions, migrations and switches'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l debug -d 'Log more, as `debug: true` in the config file does'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "diff" -d 'Show what would change if a policy became the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "status" -d 'Show what is in force, since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "rollback" -d 'Return to the policy that was in force before'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "init" -d 'Write a first policy for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and not __fish_seen_subcommand_from apply check diff show status explain rollback init help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -l dry-run -d 'Show what would change and change nothing'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s y -l yes -d 'Do not ask; needed if standard input or output is no terminal'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from diff" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from diff" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from diff" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -l tasks -d 'Show the tasks instead: a row for each thread under a rule, with its pod and the generation by which the kernel schedules it. After a change, a thread takes the new one when it next runs'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -l plot -d 'Draw for each rule, and for the tasks without one, how long wake-ups took until the task ran'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -l dry-run -d 'Show what would change and change nothing'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s y -l yes -d 'Do not ask; needed if standard input or output is no terminal'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from init" -s o -l output -d 'Where to write it; - for standard output' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from init" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from init" -l force -d 'Replace the file if it exists'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from init" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Show what would change if a policy became the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show what is in force, since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "rollback" -d 'Return to the policy that was in force before'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "init" -d 'Write a first policy for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -l wait -d 'Wait at most SECONDS (without a value: 60) until the kernel schedules by the policy, then go on' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -l ready -d 'Print one line, and fail unless the scheduler is loaded and the kernel schedules by the policy in force. A rejected file is no failure: the policy before it stays in force'
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -s c -l config -d 'Also check this config file' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -l nfd -d 'Also write what the machine has to a file for node-feature-discovery, which makes it labels of the Kubernetes node, such as gthctl.sched_ext=true. Without a value: into /etc/kubernetes/node-feature-discovery/features.d/gthctl' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand metrics" -l metrics-compat -d 'Also print the metrics of pods by the names of another program, if the running gthctl counts what pods do (`gthctl run --pod-counters`)' -r -f -a "gthulhu\t'gthulhu_pod_..., as Gthulhu\'s monitor exports them'"
complete -c gthctl -n "__fish_gthctl_using_subcommand metrics" -l file -d 'Replace FILE instead of printing; it must not be a symbolic link' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand metrics" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand metrics" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -s d -l delay -d 'How often to look, in seconds (0.1 to 3600)' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -s o -l output -d 'Print this after one delay, and end' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -l once -d 'Print the tables after one delay, and end'
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l port -d 'Its UDP port' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l duration -d 'How long each row takes, 60s at most' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l interval -d 'The time from one probe to the next, from 1ms to 1s' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l load -d 'Also measure with THREADS spinning threads for each CPU, 16 at most; without a value: 2' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l policy -d 'Also measure while gthctl schedules by this policy' -r -F
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s f -l function -d 'Any function of the kernel or a module, instead of a data plane' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l pid -d 'Only this process or thread' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l cpu -d 'Only these CPUs, as a list: 0-3,8' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l interval -d 'How often to show the counts' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l duration -d 'End after this time' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l by -d 'Also show the packets, bytes and drops of each tunnel (GTP data planes only), the busiest first' -r -f -a "teid\t'Tunnel end point identifier'"
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s o -l output -d 'By default a table on a terminal, otherwise lines; JSON has one object per line' -r -f -a "table\t''
lines\t''
json\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l stages -d 'Also trace the functions where a packet\'s time goes: look-up, QoS, route, header'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l wait -d 'Wait until the data plane\'s module is loaded, or the device has an XDP program'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l once -d 'End after one interval'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s v -l verbose -d 'Print for each function how it is traced or why not, one per line'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l events -d 'Print single packets with their times in ns, not counts'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l drops -d 'Also show the packets that are dropped, by direction, reason and place in the kernel'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l latency -d 'Also show how long packets take from their arrival at this host to the end of the data plane, as a plot'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l histogram -d 'Also plot the time in each function'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l kprobe -d 'Use kprobes even with BTF; slower, but the module can be unloaded'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l suggest -d 'Watch silently, for 10 s or --duration, then print a policy for what it saw: rules for tasks, and irq for NICs whose packets are processed in softirq'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand trace" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -l interval -d 'How often, with --watch' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -l duration -d 'End after this time, with --watch' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -s w -l watch -d 'Repeat until Ctrl-C; JSON has one object per line'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "list" -d 'Show the interrupts of NICs: where they may go, where they do go, how many come'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "pin" -d 'Place a NIC\'s interrupts'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "restore" -d 'Put interrupts back where they were'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "drift" -d 'Check whether each interrupt is still where it was placed'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "advise" -d 'Suggest where a NIC\'s interrupts should go'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and not __fish_seen_subcommand_from list pin restore drift advise help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -l interval -d 'How often, with --watch' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -l duration -d 'End after this time, with --watch' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -s w -l watch -d 'Repeat until Ctrl-C; JSON has one object per line'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -s c -l cpus -d 'The CPUs, as a list: 0-3,8' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -s q -l queue -d 'Only the IRQs of this queue; may be repeated' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l irq -d 'Only this IRQ; may be repeated' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l rps -d 'Also the queues\' RPS masks: the CPUs of their IRQs (also without a value), or none' -r -f -a "match\t'The CPUs of the queue\'s IRQ'
off\t'No CPU'"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l xps -d 'Also the queues\' XPS masks: the CPUs of their IRQs (also without a value), or none' -r -f -a "match\t'The CPUs of the queue\'s IRQ'
off\t'No CPU'"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l spread -d 'One CPU for each queue'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l ban -d 'Tell a running irqbalance by its socket to leave these IRQs alone'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l force -d 'Place them even if irqbalance is running'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l dry-run -d 'Show what would change and change nothing'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from pin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from restore" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from restore" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from restore" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from drift" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from drift" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from drift" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from drift" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from advise" -l duration -d 'How long to watch' -r
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from advise" -s o -l output -d 'A table, or all facts in JSON or YAML' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from advise" -l color -d 'When to use colour; auto: on a terminal, unless NO_COLOR is set' -r -f -a "auto\t''
always\t''
never\t''"
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from advise" -l wide -d 'Print tables at their full width. Otherwise tables fit the terminal: long cells are cut (…), and sentences wrap'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from advise" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show the interrupts of NICs: where they may go, where they do go, how many come'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "pin" -d 'Place a NIC\'s interrupts'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "restore" -d 'Put interrupts back where they were'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "drift" -d 'Check whether each interrupt is still where it was placed'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "advise" -d 'Suggest where a NIC\'s interrupts should go'
complete -c gthctl -n "__fish_gthctl_using_subcommand irq; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "run" -d 'Load the scheduler and run until stopped'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "policy" -d 'Show and change the live policy'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "status" -d 'Show on one screen whether gthctl does its work'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "doctor" -d 'Check the machine before anything is loaded'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "metrics" -d 'Print the running gthctl\'s metrics for Prometheus'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "top" -d 'Show live what the scheduler does'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "test" -d 'Measure round trips to a user plane, idle and under load'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "trace" -d 'Show which tasks handle GTP packets, and on which CPUs'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "irq" -d 'See and place the interrupts of NICs'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and not __fish_seen_subcommand_from run policy status doctor metrics top test trace irq help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "apply" -d 'Make a policy the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "check" -d 'Check a policy file for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "diff" -d 'Show what would change if a policy became the live one'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "show" -d 'Show the rules in force, and how many tasks fall under each'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "status" -d 'Show what is in force, since when, and why the file on disk is not'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "explain" -d 'Show which rule a task falls under and why'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "rollback" -d 'Return to the policy that was in force before'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "init" -d 'Write a first policy for this machine'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from irq" -f -a "list" -d 'Show the interrupts of NICs: where they may go, where they do go, how many come'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from irq" -f -a "pin" -d 'Place a NIC\'s interrupts'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from irq" -f -a "restore" -d 'Put interrupts back where they were'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from irq" -f -a "drift" -d 'Check whether each interrupt is still where it was placed'
complete -c gthctl -n "__fish_gthctl_using_subcommand help; and __fish_seen_subcommand_from irq" -f -a "advise" -d 'Suggest where a NIC\'s interrupts should go'
