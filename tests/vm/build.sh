# shellcheck shell=bash disable=SC2154,SC2034
# Builds what the VM runs. The binaries are static. The VM shares the checkout, so they
# run from there.

export CARGO_TARGET_DIR=$checkout/target
release=$CARGO_TARGET_DIR/$machine-unknown-linux-gnu/release

# gthctl and the testbed, into $release.
build_binaries() {
    local cargo=(cargo build)
    [[ $arch == amd64 ]] || cargo=("$checkout/deploy/build-arm64")
    "${cargo[@]}" --quiet --manifest-path "$checkout/Cargo.toml" --release --workspace --bins "$@" ||
        die "the build failed"
}

# Like build_binaries, plus the suite, in one call, which compiles them side by side. Prints the
# path of the suite's executable.
build_suite() {
    local messages
    messages=$(build_binaries --test vm --message-format=json) || exit
    sed -nE '/"name":"vm"/s/.*"executable":"([^"]+)".*/\1/p' <<<"$messages"
}

# build_bpf NAME: prints the path of tests/vm/NAME.bpf.c's object file.
build_bpf() {
    local object=$cache/$1.bpf.o
    "${CLANG:-clang-19}" -mcpu=v3 -O2 -g -target bpf -c "$checkout/tests/vm/$1.bpf.c" -o "$object.new" ||
        die "$1.bpf.c does not compile"
    mv "$object.new" "$object"
    echo "$object"
}
