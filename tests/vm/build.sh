# shellcheck shell=bash disable=SC2154,SC2034
# Builds what the VM runs. The binaries are static and lie in the checkout, which
# the VM shares, so they run there from where they are.

export CARGO_TARGET_DIR=$checkout/target
release=$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release

# gthctl and the testbed, into $release.
build_binaries() {
    cargo build --quiet --manifest-path "$checkout/Cargo.toml" --release --workspace --bins || die "the build failed"
}

# Prints the path of the suite's executable.
build_suite() {
    local messages
    messages=$(cargo test --manifest-path "$checkout/Cargo.toml" --quiet --release --test vm --no-run \
        --message-format=json) || die "the suite does not build"
    sed -nE '/"name":"vm"/s/.*"executable":"([^"]+)".*/\1/p' <<<"$messages"
}
