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
