# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this directory: the architecture, paths, messages, one lock.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
checkout=$(cd "$here/../.." && pwd -P)
cache=$checkout/target/vm

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 125
}

# The VM's architecture and that of what runs in it, by Debian's name: VM_ARCH=arm64 in the
# environment, else amd64. gcc, Rust and QEMU call it $machine; $board is QEMU's kind of machine.
arch=${VM_ARCH:-amd64}
case $arch in
amd64) machine=x86_64 board=q35 ;;
arm64)
    machine=aarch64 board=virt,gic-version=3
    cache+=/arm64
    ;;
*) die "VM_ARCH is '$arch' (amd64, arm64)" ;;
esac

# Holds the lock NAME until the script ends, so that concurrent calls wait for
# the first one's result instead of repeating its work.
lock() {
    mkdir -p "$cache/lock"
    exec 9>"$cache/lock/$1"
    flock 9
}

# The libraries that programs name, the loader among them, as absolute paths.
libraries() { ldd "$@" | grep -oE '/[^ :]+ \(0x' | cut -d' ' -f1 | sort -u; }

# died_of_emulation LOG: the kernel log tells so.
died_of_emulation() { [[ -e $1 ]] && grep -qE 'Oops: int3|^qemu-system.* Assertion .* failed' "$1"; }

# complaints LOG: what the kernel complains about, if anything. Left out are what it says once the
# emulation has failed it, and the warning that its own gtp driver causes.
complaints() {
    [[ -e $1 ]] && sed '/Oops: int3/,$d' "$1" |
        grep -E 'WARNING:|(^|[^A-Z])BUG:|rcu: INFO|blocked for more|lockup' |
        grep -vE 'WARNING: .* iptunnel_xmit\+'
}

# run_until_finished NAME TESTS LOG OUTPUT COMMAND...: COMMAND with the names in the file TESTS, which
# runs these tests in a VM. LOG is a link to its kernel log. The output goes to standard output and into
# the file OUTPUT. The tests that a failure of the emulation left run again. A kernel that complains
# makes it fail.
run_until_finished() {
    local name=$1 log=$3 output=$4 status=0 failed=0 attempt tests lines
    mapfile -t tests <"$2"
    shift 4
    : >"$output"
    for attempt in 1 2 3 4; do
        status=0
        "$@" "${tests[@]}" | tee -a "$output" || status=$?
        if lines=$(complaints "$log"); then
            say "$name: the kernel complains, see $(readlink "$log"):"
            printf '%s\n' "$lines" >&2
            failed=1
        fi
        if ((status != 125)) || ! died_of_emulation "$log"; then break; fi
        # One that failed is not run again, and the run remains a failed one.
        ! grep -qE '(^|[^A-Z])FAILED( <[0-9.]+s>)?$' "$output" || failed=1
        mapfile -t tests < <(printf '%s\n' "${tests[@]}" |
            grep -vxFf <(sed -nE 's/^test (.*) \.\.\. (ok|FAILED)( <.*)?$/\1/p' "$output"))
        say "the emulation failed the guest (attempt $attempt); ${#tests[@]} tests are left"
        if ((${#tests[@]} == 0)); then
            status=0
            break
        fi
    done
    ((status)) || status=$failed
    return $status
}
