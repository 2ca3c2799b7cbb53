# Everything for people and for CI. `make try` and `make test` are all that a new machine needs.

# What is slow to make once lives outside the checkout: dependencies, Kubernetes, the node's root file system.
export NODESTRAP_CACHE ?= $(HOME)/.cache/nodestrap
export CARGO_TARGET_DIR ?= $(NODESTRAP_CACHE)/target
DENY_VERSION := 0.20.2
FUZZ_VERSION := 0.13.2
FUZZ := $(NODESTRAP_CACHE)/tools/cargo-fuzz-$(FUZZ_VERSION)/bin/cargo-fuzz
DENY := $(NODESTRAP_CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

.PHONY: help claim try test soak setup lint unit booted lab bench dist install docs fuzz

help:
	@echo 'make try     build, then bootstrap a throw-away node in a sandbox folder (no root, no network)'
	@echo 'make test    install what the tests need, then run them all (first run: an hour, then under 20 minutes)'
	@echo 'make soak    every sweep in full: crashes, walks from bundle to bundle, also on booted nodes; two builds compared (root; hours)'
	@echo 'make lint    format, clippy, licences, advisories where their database can be had'
	@echo 'make unit    the tests that need nothing but Rust'
	@echo 'make booted  the tests on booted nodes (root)'
	@echo 'make lab     a real cluster to play with on this machine (root)'
	@echo 'make bench   measure beside the peers (root)'
	@echo 'make dist    the static binary, an SBOM, manual pages, completions, units and a Debian package, with checksums'
	@echo 'make docs    the generated parts of docs/reference'
	@echo 'make fuzz    feed everything that reads with anything (nightly Rust; FUZZ_SECONDS for each target)'

claim:
	@scripts/claim-target

try: claim
	cargo build --locked -p cli
	@$(CARGO_TARGET_DIR)/debug/nodestrap try

# Sweeps take a sample, another one for each commit, which they print; `make soak` takes everything.
export NODESTRAP_SAMPLE ?= $(shell printf '%d' 0x$$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0))

test: setup lint unit booted

soak: export NODESTRAP_SEEDS = 100000
soak: export NODESTRAP_WALKS = 100000
soak: export NODESTRAP_BOOTED_WALKS = 20
soak: export NODESTRAP_INTERRUPTIONS = 10
soak: export NODESTRAP_SUBSETS = 3
soak: test
	scripts/reproduce

# Debian packages (as root), Kubernetes and the node's root file system: once, then a matter of milliseconds.
setup: claim
	cargo run --locked --quiet -p lab -- prepare --install

lint: claim $(DENY)
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	$(DENY) --log-level error check bans licenses sources
	scripts/check-advisories $(DENY)

unit: claim
	cargo test --locked --workspace --exclude lab --quiet

booted: setup
	NODESTRAP_BINARY=$$(scripts/build-dist) cargo test --locked -p lab -- --test-threads=2

lab: setup
	NODESTRAP_BINARY=$$(scripts/build-dist) cargo run --locked --quiet -p lab -- demo

bench: setup
	scripts/build-dist bench-render >/dev/null
	NODESTRAP_BINARY=$$(scripts/build-dist) bench/run

dist: claim
	@scripts/package "$$(scripts/build-dist)" "$(CARGO_TARGET_DIR)/dist"

docs: claim
	cargo run --locked --quiet -p pages

fuzz: FUZZ_SECONDS ?= 60
fuzz: $(FUZZ)
	PATH="$(dir $(FUZZ)):$$PATH" fuzz/run $(FUZZ_SECONDS)

# As a package would: for images that are baked on this machine.
install: DESTDIR ?= /
install: claim
	install -D -m 0755 "$$(scripts/build-dist)" "$(DESTDIR)/usr/bin/nodestrap"
	install -D -m 0644 -t "$(DESTDIR)/usr/lib/systemd/system" dist/systemd/*.service
	systemctl --root="$(DESTDIR)" enable k8s-node-bootstrap.service

$(DENY):
	@echo 'building cargo-deny $(DENY_VERSION) once, a few minutes'
	CARGO_TARGET_DIR=$$(mktemp -d) cargo install --quiet --locked --root $(dir $(DENY))/.. cargo-deny@$(DENY_VERSION)

$(FUZZ):
	@echo 'building cargo-fuzz $(FUZZ_VERSION) once, a minute'
	CARGO_TARGET_DIR=$$(mktemp -d) cargo install --quiet --locked --root $(dir $(FUZZ))/.. cargo-fuzz@$(FUZZ_VERSION)
