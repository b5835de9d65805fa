# gthctl's build and tests, from a fresh Debian 12 on. `make help` lists the targets.

# Everything is built in the release profile, so that nothing is compiled twice.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# They would take the place of the flags in .cargo/config.toml: the build would not be static.
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS

# A host's sched_ext, or its absence.
STATE := /sys/kernel/sched_ext/state
GTHCTL := target/x86_64-unknown-linux-gnu/release/gthctl
# The oldest cargo that builds this (rust-version in Cargo.toml).
CARGO_MIN := 1.89
# The build, the VM and what goes into it.
PACKAGES := clang-19 gcc git libc6-dev libelf-dev libzstd-dev make pkg-config zlib1g-dev \
	busybox-static cpio debian-archive-keyring iproute2 iputils-ping kmod libcap-ng0 \
	libglib2.0-0 libnuma1 libsystemd0 qemu-system-x86 shellcheck stress-ng tmux xz-utils
# How long `make fuzz` takes for each of the two parsers.
FUZZ_SECONDS ?= 300
# The one that the package is built with: another one may compress in another way.
CARGO_DEB := 3.8.0
# The tests of the command line, the documents and the source. Not that of the VM.
COMMAND_TESTS := $(patsubst tests/%.rs,--test=%,$(wildcard tests/*.rs))
# The library's own tests measure nothing, and compile in a quarter of the time without this.
UNOPTIMIZED := --config profile.release.package.gthctl.opt-level=0
SCRIPTS := $(shell grep -lE '^\#!.*bash|^\# shellcheck shell=bash' tests/vm/* tests/deb/* deploy/* .ci/* 2>/dev/null)

help: ## this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

deps: ## install what is missing (apt; root or sudo)
	@tests/vm/install $(PACKAGES)
	@version() { cargo --version 2>/dev/null | cut -d' ' -f2; }; \
	is_new() { [[ $$(printf '%s\n' $(CARGO_MIN) "$$(version)" | sort -V | head -n 1) == $(CARGO_MIN) ]]; }; \
	is_new || command -v rustup >/dev/null || tests/vm/install cargo-web rustc-web; \
	is_new || { echo "$$(command -v cargo) is $$(version); $(CARGO_MIN) is needed (rustup update)" >&2; exit 1; }

build: deps ## the static release binary
	cargo build --release

build-arm64: deps ## the same for arm64, built on another machine (needs rustup)
	@tests/vm/install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	deploy/build-arm64

run: build ## gthctl on this host, or measured in the test VM
	@if [[ ! -e $(STATE) ]]; then \
		why="this kernel ($$(uname -r)) has no sched_ext"; \
	elif [[ $$(id -u) != 0 ]]; then \
		why="loading a scheduler takes root"; \
	else \
		exec $(GTHCTL) run -c examples/config.yaml; \
	fi; \
	echo "$$why: running gthctl in the test VM instead"; \
	exec tests/vm/rtt

test: lint unit vm ## everything CI runs

# The tests' dependencies may bring features that gthctl does not ask for and needs. So it is also
# checked without them.
lint: deps ## shellcheck; the code without the tests; rustfmt and clippy where installed
	shellcheck -x -P SCRIPTDIR $(SCRIPTS)
	shellcheck -s dash tests/vm/init
	cargo check --release --locked
	@if cargo fmt --version >/dev/null 2>&1; then \
		set -x; cargo fmt --all --check; \
	else echo "no rustfmt here: not checked"; fi
	@if cargo clippy --version >/dev/null 2>&1; then \
		set -x; cargo clippy --release --workspace --all-targets -- -D warnings; \
		cargo clippy --release --workspace --test vm -- -D warnings; \
	else echo "no clippy here: not checked"; fi

# Many of the library's tests wait for most of their time, hence more threads than CPUs. The second
# line builds all that is still to run, in `make vm` too, side by side.
unit: deps ## the tests that need no kernel; licences
	cargo fetch --locked --target x86_64-unknown-linux-gnu
	cargo test --release --workspace --lib $(UNOPTIMIZED) -- --test-threads=$$((2 * $$(nproc)))
	cargo build --release --workspace --bins --test '*'
	cargo test --release --workspace $(COMMAND_TESTS)

vm: deps ## the tests that need one, in the VM; the data plane no slower than its ceilings
	@tests/vm/install iperf3 linux-perf rt-tests
	tests/vm/test
	tests/vm/bench-quick -c benches/vm/ceilings.json

test-kernels: deps ## the VM tests on other kernels (builds a 6.12)
	tests/vm/test-kernels

test-arm64: build-arm64 ## VM tests on an arm64 machine, which QEMU emulates
	tests/vm/test-arm64

test-kubernetes: deps ## the VM tests with a real API server (builds it: 10 minutes)
	@tests/vm/install openssl $$(command -v go >/dev/null || echo golang-go)
	tests/vm/test-kubernetes

# cargo-fuzz needs the compiler's sanitizers, which stable Rust has only with
# RUSTC_BOOTSTRAP=1. The flags that it sets take the place of .cargo/config.toml's,
# so this build is not static.
fuzz: deps ## the parsers with random input (cargo-fuzz; FUZZ_SECONDS for each)
	@tests/vm/install g++
	@cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --debug
	@for target in policy config; do \
		mkdir -p tests/fuzz/corpus/$$target; \
		RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz $$target \
			tests/fuzz/corpus/$$target tests/fuzz/seeds/$$target examples -- \
			-dict=tests/fuzz/keys.dict -timeout=10 -max_total_time=$(FUZZ_SECONDS) \
			-print_final_stats=1; \
	done

bench: deps ## gthctl beside other schedulers, in virtual time, into docs/bench (half an hour)
	@tests/vm/install iperf3 libclang1-19 libseccomp-dev linux-perf rt-tests \
		$$(command -v go >/dev/null || echo golang-go)
	tests/vm/bench

bench-quick: deps ## the same of the closest bars only, as a table (7 minutes)
	@tests/vm/install iperf3 linux-perf rt-tests
	tests/vm/bench-quick

profile: deps ## where the time of a round trip goes, in virtual time
	tests/vm/profile

instructions: deps ## what a round trip waits for, by a log of each instruction
	tests/vm/instructions

image: build ## the container image of deploy/, as an OCI archive in target/
	@tests/vm/install buildah
	deploy/image

deb: deps ## the Debian package, in target/debian/
	@cargo deb --version >/dev/null 2>&1 || cargo install cargo-deb --locked --version $(CARGO_DEB)
	deploy/deb

test-deb: deb ## the package installed, upgraded and removed; its service in the VM
	@tests/vm/install mmdebstrap
	tests/deb/test

generate: deps ## man pages, completions, third-party notices
	UPDATE=1 cargo test --release --test generated
	UPDATE=1 cargo test --release -p gthctl-licences

clean: ## remove everything built or downloaded
	rm -rf target tests/fuzz/target

.PHONY: help deps build build-arm64 run test lint unit vm test-kernels test-arm64 \
	test-kubernetes fuzz bench bench-quick profile instructions image deb test-deb generate clean
