# `make help` says what there is.
.DEFAULT_GOAL := build
.PHONY: build release setup peers test test-all test-neutron lint fuzz simulate soak bench bench-plugins bench-cluster bench-neighbours bench-between bench-ovs bench-pool demo docs cluster cluster-verify matrix cluster-down guest clean help
.SILENT:

export NETLOOM_PEERS ?= $(HOME)/.cache/netloom-peers
export NETLOOM_GUEST ?= $(HOME)/.cache/netloom-guest
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# Only what attaches networks runs as root; cargo never does unless you are root.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$(PATH):/usr/sbin:/sbin")

build: ## the static executables in dist/, and their sizes
	scripts/build.sh

release: ## dist/release/netloom-VERSION-linux-{x86_64,aarch64}.tar.gz, the same bytes each time, and what of them can be tried here
	scripts/setup.sh release
	scripts/release.sh
	scripts/release.sh --again
	$(SUDO) scripts/release-test.sh

setup: ## install what tests and demo run (apt, only what is missing)
	scripts/setup.sh test

peers: ## build the reference plugins that tests and benchmarks compare with (Go)
	scripts/peers.sh

test: setup ## what needs neither Go nor a guest nor Kubernetes, in network namespaces of its own (SUITE=plugins TEST=portmap)
	cargo xtask test $(SUITE) $(TEST)

test-all: setup ## that and the rest: reference plugins, a real Kubernetes, a guest's kernel, podman, simulation, fuzz targets (SUITE=parity)
	cargo xtask test --all $(SUITE) $(TEST)

test-neutron: ## the part of test-all that needs OpenStack: it installs Debian's Neutron and Keystone, and runs them on loopback (TEST=ports::)
	cargo xtask test neutron $(TEST)

lint: ## format, clippy, documentation, licences, the floors of the house
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
	"$$(scripts/tool.sh cargo-deny)" --log-level error check --hide-inclusion-graph bans licenses sources
	cargo xtask floors
	cargo xtask sleeps
	cargo xtask conformance --check
	cargo xtask suites --check
	cargo xtask plugins --check
	cargo xtask documents

# A name that bash has for its clock: handed over as an argument, never read from the environment.
SECONDS = 60
fuzz: ## every fuzz target for a minute (SECONDS=600), on stable Rust
	scripts/fuzz.sh $(SECONDS)

simulate: ## a million steps of pools' lives with kills and power cuts, by chance (NETLOOM_SEED=N repeats a run)
	scripts/simulate.sh

MINUTES = 120
RUNS = 30
soak: build setup peers ## 5,000 nodes' addresses and a million simulated steps once, then a cluster's addresses for two hours, and kills, hostile input and fuzz targets as long (MINUTES=600)
	scripts/crowd.sh of_five_thousand_nodes
	scripts/simulate.sh
	scripts/soak.sh $(MINUTES)

bench: build peers ## our speed, the reference plugins' and the kernel's floor, as ratios (ARGS="--rounds 100 --json FILE")
	scripts/setup.sh bench
	scripts/build.sh bench
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches $(ARGS)

bench-plugins: build peers ## each plugin by itself against the reference plugin of its name, here and in the guest (ARGS="--plugin-rounds 500")
	scripts/setup.sh guest
	scripts/setup.sh bench
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches plugins $(ARGS)
	scripts/guest.sh $(TARGET_DIR)/release/netloom-benches plugins --plugin-rounds 30

bench-cluster: build peers ## the agent with a real API server, against the reference plugins for one network (ARGS="--rounds 100")
	scripts/setup.sh bench
	scripts/setup.sh cluster
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches cluster $(ARGS)

bench-neighbours: build peers ## an innocent pod's ADD beside a hostile namespace, attack by attack, with a real API server (ARGS="--rounds 400")
	scripts/setup.sh bench
	scripts/setup.sh cluster
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches neighbours $(ARGS)

bench-between: build peers ## a node's agent among 5,000 Nodes; packets between nodes, against a path by hand and flannel's (ARGS="--rounds 400")
	scripts/setup.sh bench
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches nodes
	$(SUDO) $(TARGET_DIR)/release/netloom-benches paths $(ARGS)

bench-ovs: build ## one port of Open vSwitch, by its database's protocol, by ovs-vsctl and by Kuryr's code (ARGS="--rounds 500")
	scripts/setup.sh bench
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches ovs $(ARGS)

bench-pool: build peers ## durable addresses, against the reference host-local and against one flush, and a cluster's (ARGS="--rounds 100")
	cargo build --quiet --release --package netloom-benches
	$(SUDO) $(TARGET_DIR)/release/netloom-benches pool $(ARGS)
	$(SUDO) $(TARGET_DIR)/release/netloom-benches ranges
	scripts/crowd.sh five_hundred_pods_of_a_hundred_nodes
	scripts/crowd.sh two_thousand_addresses_of_one_range

demo: build ## a cluster's networking on this machine, from nothing to nothing
	scripts/setup.sh demo
	$(SUDO) scripts/demo.sh

docs: ## the documents as a book with search, in target/book/docs/ (mdbook comes with pip)
	cargo xtask documents
	"$$(scripts/tool.sh mdbook)" build docs --dest-dir "$(abspath $(TARGET_DIR))/book/docs"
	cp -R deploy examples $(TARGET_DIR)/book/
	echo "$(TARGET_DIR)/book/docs/index.html"

cluster: peers ## a real Kubernetes with two nodes on this machine, and what to type (ARGS="--nodes 3")
	scripts/setup.sh cluster
	cargo build --quiet --package netloom-testbed --package netloom-cni --package netloom
	$(SUDO) $(TARGET_DIR)/debug/netloom-testbed up $(ARGS)

cluster-verify: ## verifies that cluster thirty times, a line each (RUNS=3, ARGS="--test pod")
	$(SUDO) scripts/verify-runs.sh $(RUNS) $(ARGS)

matrix: peers ## verifies 24 such clusters, a row of a table each (NODES=2 BETWEEN=direct FAMILIES=ipv4 PROXIES=iptables, ARGS="--test pod")
	scripts/setup.sh cluster
	cargo build --quiet --package netloom-testbed --package netloom-cni --package netloom
	$(SUDO) scripts/matrix.sh $(ARGS)

cluster-down: ## takes that cluster away
	cargo build --quiet --package netloom-testbed
	$(SUDO) $(TARGET_DIR)/debug/netloom-testbed down

guest: ## a shell in a guest whose kernel has every module, over this machine's files; `exit` ends it (ARGS="ip -V" runs that)
	scripts/setup.sh guest
	scripts/guest.sh $(ARGS)

clean: ## remove what was built
	cargo clean --quiet
	rm -rf dist

help: ## this table
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
