# shellcheck shell=bash disable=SC2034,SC2154
# The benchmarks' tools, with their libraries, where the VM sees them; and their virtual time.

tools=$cache/bench-tools

# Between rounds of the CPUs, us. The tick's period, cyclictest's and ping's are no multiples of it:
# else whole boots differ (docs/performance.md).
turn=19

# copy_tools TOOL...: also the libraries of the programs in "${programs[@]}", where set.
copy_tools() {
    local tool path paths=()
    mkdir -p "$tools/bin"
    for tool in "$@"; do
        path=$(command -v "$tool") || die "$tool is missing (make bench installs it)"
        cp -Lu "$path" "$tools/bin"
        paths+=("$path")
    done
    copy_libraries "${paths[@]}" "${programs[@]}"
}

# copy_libraries PROGRAM...: those of programs that stay where they are.
copy_libraries() {
    mkdir -p "$tools"
    libraries "$@" | xargs cp -Lut "$tools"
}
