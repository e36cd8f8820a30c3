# Forebay. `make help` lists what there is; `make demo` and `make test` need nothing to have been done before.

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR    ?=
SECONDS    ?= 600
PACKETS    ?= 20000000
DEMO       ?=
BENCH      ?=
SOAK       ?=
MUTANTS    ?=

TARGET  := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(abspath $(TARGET))/release

# Always both together: cargo builds shared dependencies again when it is asked for another set of crates.
CARGO_BUILD := cargo build --release -p forebay -p forebay-lab

# The daemon the lab starts, in the demo as in the system tests: always the optimised one.
export FOREBAY_BIN := $(RELEASE)/forebay

.DEFAULT_GOAL := help
.PHONY: help build demo test guests lint bench experiments soak simulate mutants fuzz miri instructions deps bpf install clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the switch, and the lab that shows and tests it
	@scripts/toolchain.sh
	@scripts/deps.sh build
	$(CARGO_BUILD)

demo: ## Show hosts talking through a switch (root; DEMO=options for forebay-lab)
	@scripts/root.sh demo
	@scripts/toolchain.sh
	@scripts/deps.sh build demo
	$(CARGO_BUILD)
	$(RELEASE)/forebay-lab demo $(DEMO)

test: ## Run all tests: those of the crates, and the system scenarios (root)
	@scripts/root.sh test
	@scripts/toolchain.sh
	@scripts/deps.sh build demo test
	$(CARGO_BUILD)
	scripts/test.sh

lint: ## Check format, clippy, licences, dependency directions and the committed BPF objects
	@scripts/toolchain.sh fmt clippy
	@scripts/deps.sh build lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace --test dependencies --test packaging
	scripts/deny.sh
	scripts/bpf-object.sh check

guests: ## Boot another kernel with other NICs in QEMU, and run the scenarios that fit there (root)
	@scripts/root.sh guests
	@scripts/toolchain.sh
	@scripts/deps.sh build demo test
	$(CARGO_BUILD)
	scripts/guests.sh

bench: ## Measure against the kernel bridge and OVS AF_XDP (root; BENCH=options for forebay-lab)
	@scripts/root.sh bench
	@scripts/toolchain.sh
	@scripts/deps.sh build demo bench
	$(CARGO_BUILD)
	$(RELEASE)/forebay-lab bench $(BENCH)

experiments: ## Measure what one pool costs and is worth, and try the fast path; reports in experiments/ (root)
	@scripts/root.sh experiments
	@scripts/toolchain.sh
	@scripts/deps.sh build demo bench
	$(CARGO_BUILD)
	mkdir -p experiments
	for one in thousand threshold memory starvation adjustable hints misdelivery changes flows steering restart takeover waits guests; do \
		$(RELEASE)/forebay-lab $$one --json experiments/$$one.json --html experiments/$$one.html || exit 1; \
	done

soak: ## Ten minutes of mixed traffic, with ports and the daemon coming and going (root)
	@scripts/root.sh soak
	@scripts/toolchain.sh
	@scripts/deps.sh build demo test
	$(CARGO_BUILD)
	$(RELEASE)/forebay-lab soak $(SOAK)

simulate: ## Run whole workers in random order in virtual time, then plant bugs that this must find
	@scripts/toolchain.sh
	@scripts/deps.sh build
	FOREBAY_SIMULATION_PACKETS=$(PACKETS) cargo test --release -p forebay-switch --test simulation -- --nocapture
	scripts/planted.sh

mutants: ## Change policy, flow, hints, wire and pool in every small way; a unit test must fail (MUTANTS=crates)
	@scripts/toolchain.sh
	@scripts/deps.sh build
	scripts/mutants.sh $(MUTANTS)

fuzz: ## Run every fuzz target for SECONDS=600 each (nightly toolchain)
	@scripts/deps.sh build fuzz
	scripts/fuzz.sh $(SECONDS)

miri: ## Run the ring tests under Miri (nightly toolchain with the miri component)
	scripts/miri.sh

deps: ## Install every Debian package that any target needs and that is missing (root)
	@scripts/deps.sh build demo test lint bench fuzz instructions

instructions: ## Count the instructions that reading a hint takes (valgrind)
	@scripts/toolchain.sh
	@scripts/deps.sh build instructions
	scripts/instructions.sh

bpf: ## Compile the BPF objects that are committed for machines without clang
	@scripts/toolchain.sh
	@scripts/deps.sh build lint
	scripts/bpf-object.sh update

install: build ## Install binary, unit, man pages and completions below DESTDIR and PREFIX=/usr/local
	scripts/install.sh $(FOREBAY_BIN) "$(DESTDIR)" "$(PREFIX)" "$(SYSCONFDIR)"

clean: ## Remove what was built, and what a killed lab left behind
	@if [ "$$(id -u)" = 0 ] && [ -x $(RELEASE)/forebay-lab ]; then $(RELEASE)/forebay-lab clean; fi
	cargo clean
