# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this directory: paths, messages, one lock.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
checkout=$(cd "$here/../.." && pwd -P)
cache=$checkout/target/vm

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 125
}

# Holds the lock NAME until the script ends, so that concurrent calls wait for
# the first one's result instead of repeating its work.
lock() {
    mkdir -p "$cache/lock"
    exec 9>"$cache/lock/$1"
    flock 9
}

# The libraries that programs name, the loader among them, as absolute paths.
libraries() { ldd "$@" | grep -oE '/[^ :]+ \(0x' | cut -d' ' -f1 | sort -u; }
