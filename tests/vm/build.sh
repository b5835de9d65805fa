# shellcheck shell=bash disable=SC2154,SC2034
# Builds what the VM runs. The binaries are static. The VM shares the checkout, so they
# run from there.

export CARGO_TARGET_DIR=$checkout/target
release=$CARGO_TARGET_DIR/$machine-unknown-linux-gnu/release

# gthctl, the testbed and the suite, into $release, in one call, which compiles them side by side.
# Always all three: the suite gives some crates more features, so without it cargo compiles gthctl
# once more.
build_binaries() {
    local cargo=(cargo build)
    [[ $arch == amd64 ]] || cargo=("$checkout/deploy/build-arm64")
    "${cargo[@]}" --quiet --manifest-path "$checkout/Cargo.toml" --release --workspace --bins --test vm "$@" ||
        die "the build failed"
}

# Like build_binaries. Prints the path of the suite's executable.
build_suite() {
    local messages
    messages=$(build_binaries --message-format=json) || exit
    sed -nE '/"name":"vm"/s/.*"executable":"([^"]+)".*/\1/p' <<<"$messages"
}

# copy_binaries DIR: what a VM runs. A build meanwhile would change programs that run.
copy_binaries() {
    mkdir -p "$1"
    cp "$release"/{gthctl,testbed,bench,nr-gnb,exec-probe} "$1/"
}

# build_bpf NAME: prints the path of tests/vm/NAME.bpf.c's object file.
build_bpf() {
    local object=$cache/$1.bpf.o
    "${CLANG:-clang-19}" -mcpu=v3 -O2 -g -target bpf -c "$checkout/tests/vm/$1.bpf.c" -o "$object.new" ||
        die "$1.bpf.c does not compile"
    mv "$object.new" "$object"
    echo "$object"
}
