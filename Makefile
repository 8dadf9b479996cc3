# Everything is run by these targets. Each installs what it needs, or says what is
# missing and how to get it.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
GO          ?= go
TOOL        := $(GO) tool -modfile=tools.mod
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -X main.version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: need-go ## Build bin/pointsman
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/pointsman ./server/cmd/pointsman

.PHONY: demo
demo: build ## Run a whole service: no GPU, no Redis, no files
	@exec bin/pointsman demo

.PHONY: test
test: need-go need-cc need-redis ## Run all tests with the race detector
	$(GO) vet ./...
	$(GO) test -race ./...
	$(GO) test -run 'Memory|Alloc|Hostile|Stranger' ./probe ./server ./test # what the race detector would distort

.PHONY: lint
lint: need-go ## Lint Go and protobuf, and look for breaking changes of the contract
	$(TOOL) golangci-lint run ./...
	$(TOOL) buf lint
	@base=$$(git describe --tags --abbrev=0 2>/dev/null || git rev-parse --verify -q HEAD~1 || true); \
	if [ -n "$$base" ] && git cat-file -e "$$base:buf.yaml" 2>/dev/null; then \
		echo "buf breaking against $$base"; \
		$(TOOL) buf breaking --against ".git#ref=$$base"; \
	fi

.PHONY: generate
generate: generate-go ## Generate the stubs in gen/ from proto/, and the assembly: needs Python, Node.js and Maven
	proto/stubs/generate.sh python typescript java

.PHONY: generate-go
generate-go: need-go
	$(TOOL) buf generate
	$(GO) generate ./probe ./scorer

# The stubs of other languages are sealed with digests, which a test checks without
# their tools (test/stubs_test.go); make e2e-polyglot generates them anew.
.PHONY: generate-check
generate-check: generate-go ## Check that generating the Go stubs changes nothing
	@$(GEN_UNCHANGED)

.PHONY: generate-check-all
generate-check-all: generate
	@$(GEN_UNCHANGED)

define GEN_UNCHANGED
git diff --exit-code -- gen '*_amd64.s' '*_stubs_amd64.go' || { echo "what is generated is not what is committed: run make generate and commit it"; exit 1; }; \
test -z "$$(git status --porcelain -- gen)" || { git status --short -- gen; echo "gen/ has files that git does not know"; exit 1; }
endef

.PHONY: e2e
e2e: e2e-polyglot e2e-telemetry ## Run what needs more than Go: all languages, Helm, Jaeger, Prometheus

# Generates all stubs anew, then builds, installs and runs everything that is written
# for callers and operators; see test/polyglot and test/deploy.
.PHONY: e2e-polyglot
e2e-polyglot: generate-check-all
	POINTSMAN_E2E=1 $(GO) test -count=1 -timeout 40m -v ./test/polyglot/... ./test/deploy/...

# Reads traces back from a real Jaeger, and alerts, dashboard and /metrics with
# Prometheus' own parsers; see test/jaeger and test/prometheus.
.PHONY: e2e-telemetry
e2e-telemetry: need-go need-redis
	@jaeger=$$(test/jaeger/build.sh) && POINTSMAN_JAEGER=$$jaeger $(GO) test -count=1 -run InJaeger ./test
	cd test/prometheus && $(GO) test -count=1 ./...

.PHONY: bench
bench: need-go need-redis ## Measure Pointsman on this machine: a table, and bin/bench.json (a quarter of an hour)
	@mkdir -p bin
	$(GO) build -o bin/bench ./test/bench
	bin/bench --json bin/bench.json

.PHONY: bench-quick
bench-quick: need-go need-redis ## The same, shorter and smaller (two minutes)
	@mkdir -p bin
	$(GO) build -o bin/bench ./test/bench
	bin/bench --quick --json bin/bench.json

.PHONY: bench-scale
bench-scale: need-go ## Simulate replicas, popularity and caches
	$(GO) run ./test/bench scale

.PHONY: bench-go
bench-go: need-go ## Run the Go benchmarks COUNT times (default 6), for benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count $${COUNT:-6} ./...

.PHONY: chaos
chaos: need-go need-redis ## Drive two replicas through CHAOS (default 10m) of every trouble; the seed is printed
	POINTSMAN_CHAOS=$${CHAOS:-10m} $(GO) test ./test -run '^TestChaos$$' -count=1 -timeout 30m -v
	POINTSMAN_SOAK=30s $(GO) test ./test -run '^TestReloadUnderLoad$$' -count=1 -v

# A machine without a way to the database cannot check, and says so.
.PHONY: vuln
vuln: need-go ## Look for known vulnerabilities in what the program uses
	@out=$$($(TOOL) govulncheck ./... 2>&1) && { echo "$$out"; exit 0; }; code=$$?; \
	if grep -q 'fetching vulnerabilities' <<<"$$out"; then echo "SKIPPED: the vulnerability database, https://vuln.go.dev, cannot be reached"; exit 0; fi; \
	echo "$$out"; exit $$code

.PHONY: fuzz
fuzz: need-go ## Run every fuzz target for FUZZTIME (default 30s)
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-30s} $$pkg; \
		done; \
	done

.PHONY: need-go
need-go:
	@command -v $(GO) >/dev/null || { echo "make: Go is missing: install Go 1.26 or newer (https://go.dev/doc/install)"; exit 1; }

.PHONY: need-cc
need-cc:
	@cc=$$($(GO) env CC); command -v "$${cc%% *}" >/dev/null || { echo "make: a C compiler is missing ($$cc): the race detector needs one; install gcc or clang"; exit 1; }

# On Debian and its relatives redis-server is installed when it is missing; it is
# not left running, since the tests start their own.
.PHONY: need-redis
need-redis:
	@command -v redis-server >/dev/null && exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "installing redis-server"; \
		apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null; \
	else \
		echo "make: redis-server is missing: the tests start it themselves; install it (Debian: apt install redis-server, macOS: brew install redis)"; exit 1; \
	fi
