# shellcheck shell=bash disable=SC2154
# The benchmark's virtual machines, several at once: in virtual time each takes one of the host's
# CPUs, and the others do not affect it.

vms=()
# shellcheck disable=SC2317 # called by the trap
end_vms() {
    local vm
    for vm in "${vms[@]}"; do kill "$vm" 2>/dev/null || true; done
}
trap end_vms EXIT

# How many CPUs the kernel knows of, if more than there are.
possible=

# boot RECORDS PLAN CPUS BOOT ARGS...: `bench measure` in one VM, its messages with a prefix.
# The shell becomes the VM's script.
boot() {
    local records=$1 plan=$2 cpus=$3 boot=$4
    shift 4
    # shellcheck disable=SC2016 # expanded there
    exec "$here/run" -v "$turn" -s "$cpus,sockets=1,cores=$cpus" ${possible:+-p "$possible"} -m 3072 -t 10800 \
        -e "PATH=$tools/bin:/bin" -e "LD_LIBRARY_PATH=$tools" -- \
        "$here/in-memory" "$tools" "$binaries" benches/vm examples/config-no-policy.yaml "${programs[@]}" -- \
        bash -c 'if [[ -n $0 ]]; then mkdir /boot && cp "$0" /boot/; fi && exec "$@"' "${config:-}" \
        "$binaries/bench" measure "$records" --plan "$plan" --boot "$boot" \
        --gthctl "$binaries/gthctl" --config examples/config-no-policy.yaml \
        --policies benches/vm "$@" \
        > >(sed -u "s/^/$cpus CPUs, boot $boot: /") 2> >(sed -u "s/^/$cpus CPUs, boot $boot: /" >&2)
}

# measure DIR PLAN CPUS BOOTS ARGS...: starts so many VMs, each when one of the host's CPUs is free;
# records in DIR/PLAN-CPUS-cpus-BOOT.jsonl.
measure() {
    local dir=$1 plan=$2 cpus=$3 boots=$4 binaries=$1/binaries boot
    shift 4
    [[ -e $binaries ]] || copy_binaries "$binaries"
    for ((boot = 1; boot <= boots; boot++)); do
        if ((${#vms[@]} >= $(nproc))); then one_ends; fi
        boot "$dir/$plan-${possible:-$cpus}-cpus-$boot.jsonl" "$plan" "$cpus" "$boot" "$@" &
        vms+=("$!")
    done
}

one_ends() {
    local ended vm left=()
    wait -n -p ended "${vms[@]}" || failed=$?
    for vm in "${vms[@]}"; do [[ $vm == "$ended" ]] || left+=("$vm"); done
    vms=("${left[@]}")
}

# Waits for all that measure() has started; fails when one of them did.
failed=0
measured() {
    while ((${#vms[@]})); do one_ends; done
    return "$failed"
}
