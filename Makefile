# Everything a person runs. `make demo` works on a fresh machine that has Rust (rustup); `make test` on a Linux machine
# that has Go too: what else it needs, a real control plane's binaries, it builds first, into a cache that all checkouts
# share.

CARGO ?= cargo
DEVCLUSTER = $(CARGO) run -q -p evenkeel-devcluster --
BUILT = $(or $(CARGO_TARGET_DIR),target)/debug
EVENKEEL = $(BUILT)/evenkeel
CARGO_DENY_VERSION = 0.20.2
# More arguments for the demonstration and the cluster targets.
ARGS ?=

.DEFAULT_GOAL := help
# One thing after the other: cargo is parallel by itself, and the progress stays readable.
.NOTPARALLEL:

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show a whole upgrade of a cluster that is made up in the program (ARGS='--scenario broken' breaks and heals one)
	$(CARGO) run -q -- demo $(ARGS)

.PHONY: demo-upgrade
demo-upgrade: binaries build ## Show a whole upgrade on a real control plane, in this terminal
	$(CARGO) run -q --example demo -- $(EVENKEEL)

.PHONY: test
test: tools ## Run every test, those on a real control plane included, with the static binary as the image has it
	@CARGO='$(CARGO)' scripts/test

.PHONY: campaign
campaign: ## Plans of 100,000 clusters, and every campaign on the virtual cluster in full (hours; one that was stopped goes on)
	@CARGO='$(CARGO)' scripts/campaign $(ARGS)

.PHONY: lint
lint: cargo-deny check-rules check-health ## Check format, clippy, documentation, licenses, dependencies, alerts and health checks
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --no-default-features --bin evenkeel -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	$(CARGO) deny check bans licenses sources

.PHONY: crds
crds: ## Write crds/ anew from the code (a test says when that is needed)
	$(CARGO) run -q -- crds --dir crds

.PHONY: fuzz
fuzz: ## Run each fuzz target for a minute (FUZZ_SECONDS=600 for longer); installs cargo-fuzz and a nightly Rust
	scripts/fuzz

.PHONY: e2e-upstream
e2e-upstream: binaries ## Run Kubernetes' own end-to-end specs on the virtual cluster and on a real control plane (half an hour)
	scripts/e2e-upstream $(ARGS)

.PHONY: bench
bench: bench-core bench-sim bench-upgrade bench-memory bench-cluster ## Measure everything: the five below; takes forty minutes

.PHONY: bench-core
bench-core: ## Measure: ns per node, MB/s and memory of a report, size of the program, build times of the core
	$(CARGO) bench -q -p evenkeel-core --bench assess
	$(CARGO) bench -q -p evenkeel --bench report
	scripts/figures

# As it is shipped. Memory that is free is needed again at once: giving it back to the system takes a fifth of the time.
.PHONY: bench-sim
bench-sim: ## Measure the virtual cluster: 5,000 nodes and 150,000 pods, its speed and memory
	MIMALLOC_PURGE_DELAY=-1 $(CARGO) run -q --profile dist -p evenkeel-sim --example speed

.PHONY: bench-upgrade
bench-upgrade: ## Measure a whole upgrade on the virtual cluster, and kubectl drain on the same: 300 nodes with 9,000 pods (ARGS='5000' takes hours)
	$(CARGO) run -q --release --example large_upgrade -- $(or $(ARGS),300)

.PHONY: bench-cluster
bench-cluster: binaries ## Measure the reporter at 5,000 nodes on a real kube-apiserver, and the size of the static binary
	scripts/bench-cluster

.PHONY: bench-memory
bench-memory: binaries ## Measure the operator's memory: 5,000 nodes with 150,000 pods, at rest and in an upgrade
	scripts/bench-memory

.PHONY: static
static: ## Build the static binary of the image; tests take it by EVENKEEL_BINARY
	@binary="$$(scripts/static-binary)" && \
	echo "$$binary: static, $$(stat -c %s "$$binary") bytes, $$(gzip -9c "$$binary" | wc -c) compressed"

.PHONY: check-rules
check-rules: ## Check the Prometheus alerts with promtool, and run their tests (builds promtool the first time)
	scripts/check-rules

.PHONY: check-health
check-health: ## Check what Argo CD makes of our objects, with its own Lua
	scripts/check-health

.PHONY: e2e-real
e2e-real: real-binaries ## Test real nodes: kubelets, kubeadm, whole upgrades of them by Evenkeel; needs root (an hour and a half)
	$(CARGO) test -p evenkeel-devcluster --test real_nodes -- --include-ignored --nocapture --test-threads=1 $(ARGS)
	$(CARGO) test --test real -- --include-ignored --nocapture --test-threads=1 $(ARGS)

.PHONY: cluster-up
cluster-up: binaries ## Start a development cluster in the background (ARGS='--apiserver 1.36 --nodes 6', or '--real')
	$(DEVCLUSTER) up $(ARGS)

.PHONY: cluster-shell
cluster-shell: ## Open a shell in which kubectl reaches it (ARGS='-- kubectl get nodes' runs that instead)
	@$(DEVCLUSTER) shell $(ARGS)

.PHONY: cluster-down
cluster-down: ## End the development cluster
	$(DEVCLUSTER) down $(ARGS)

.PHONY: binaries
binaries: tools ## Build etcd, kube-apiserver and the others into a cache outside the checkout (first time: twenty minutes)
	$(DEVCLUSTER) build

.PHONY: real-binaries
real-binaries: tools ## Build what real nodes are made of, into the same cache (first time: half an hour, 2.5 GB)
	$(DEVCLUSTER) build --real

.PHONY: audit
audit: cargo-deny ## Check the dependencies against published advisories (fetches them from github.com)
	$(CARGO) deny check advisories

.PHONY: clean
clean: ## Remove what cargo built; the cache of cluster binaries stays
	$(CARGO) clean

.PHONY: build
build:
	$(CARGO) build

# The namespaces that development clusters live in are made with these.
.PHONY: tools
tools:
	@test "$$(uname)" = Linux || { echo "error: development clusters need Linux" >&2; exit 1; }
	@missing=; PATH="$$PATH:/usr/sbin:/sbin"; \
	for tool in ip mount nsenter setpriv setsid unshare; do \
		command -v $$tool >/dev/null || missing="$$missing $$tool"; \
	done; \
	test -z "$$missing" || { \
		echo "error: missing:$$missing; install iproute2 and util-linux (Debian: apt-get install iproute2 util-linux)" >&2; \
		exit 1; \
	}

.PHONY: cargo-deny
cargo-deny:
	@test "$$($(CARGO) deny --version 2>/dev/null)" = "cargo-deny $(CARGO_DENY_VERSION)" || { \
		echo "installing cargo-deny $(CARGO_DENY_VERSION), which takes a few minutes"; \
		$(CARGO) install cargo-deny --debug --locked --version $(CARGO_DENY_VERSION); \
	}
