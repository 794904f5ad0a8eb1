# Every target says what it does behind "##"; `make` alone prints the list.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN    := $(CURDIR)/bin
# A folder of OSV reports, for checks without a network.
VULNDB ?= ../shared/vulndb
# Sizes of the long suites.
SNOWMELT_KILLS     ?= 300
SNOWMELT_SINK_KILLS ?= 300
SNOWMELT_HISTORIES ?= 20000
SNOWMELT_CHAOS_SEEDS ?= 50
# Apache Kafka for the tests: the version is that of itest/kafka/pom.xml.
KAFKA_VERSION := $(shell sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' itest/kafka/pom.xml)
KAFKA := $(or $(SNOWMELT_KAFKA_CACHE),$(CURDIR)/.cache/kafka)/$(KAFKA_VERSION)
LONG_LOG := docs/runs/long-$(shell date -u +%Y%m%dT%H%M%SZ).log

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build ./snowmelt
	go build -o snowmelt .

.PHONY: tools
tools: $(BIN)/.installed ## Install the pinned tools of tools/go.mod into bin/

$(BIN)/.installed: tools/go.mod tools/go.sum
	mkdir -p $(BIN)
	GOBIN=$(BIN) go install -modfile=tools/go.mod tool
	touch $@

.PHONY: fmt
fmt: tools ## Format every Go file
	$(BIN)/gofumpt -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: fmt-check
fmt-check: tools
	@unformatted=$$($(BIN)/gofumpt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet:
	go vet ./...

.PHONY: lint
lint: tools ## Run golangci-lint and staticcheck
	$(BIN)/golangci-lint run ./...
	$(BIN)/staticcheck ./...

.PHONY: vuln
vuln: tools ## Look for known vulnerabilities in what the binary calls
	@if [ -d "$(VULNDB)" ]; then \
		grep -ho 'as of [0-9-]*' "$(VULNDB)/README.md" | sed 's/^/vulnerability reports /' || true; \
		$(BIN)/govulncheck -db "file://$$(cd "$(VULNDB)" && pwd)" ./...; \
	else echo "SKIPPED: govulncheck needs a folder of OSV reports at $(VULNDB); set VULNDB to one"; fi

.PHONY: test
test: ## Run the tests
	go test ./...

.PHONY: kafka
kafka: $(KAFKA)/.fetched ## Fetch Apache Kafka's jars into .cache/kafka (needs Java and Maven)

$(KAFKA)/.fetched: itest/kafka/pom.xml
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
		rm -rf "$(KAFKA)" && mkdir -p "$(KAFKA)" && \
		mvn -q -B -f itest/kafka/pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(KAFKA)/libs" && \
		touch $@ && echo "Apache Kafka $(KAFKA_VERSION) is in $(KAFKA)"; \
	else echo "SKIPPED: Apache Kafka needs java and mvn in the PATH; tests on it are skipped"; fi

# Not those black-box tests that bring a broker of their own, nor those of core/kafka that need the fake's faults.
KAFKA_SKIP := ^(TestDemo|TestChaos|TestEventLog|TestQuickstart|TestWrongConfiguration|TestErrorsOf.*|TestEnsureTopicErrors|TestUnknownOwner|TestDenied.*|TestAtLeastOnceSends.*|TestAtLeastOnceOutlives.*|TestPageAndCursorAreOne.*|TestAccidentsAreNoTakeover)$$
KAFKA_KILLS      ?= 10
KAFKA_SINK_KILLS ?= 8
KAFKA_FLAGS      ?=

.PHONY: kafka-test
kafka-test: kafka ## Run the tests of core/kafka and the black-box tests on Apache Kafka
	SNOWMELT_KILLS=$(KAFKA_KILLS) SNOWMELT_SINK_KILLS=$(KAFKA_SINK_KILLS) \
		go test -count=1 -p 1 -timeout 15m $(KAFKA_FLAGS) -skip '$(KAFKA_SKIP)' ./core/kafka ./itest/blackbox -kafka=real

.PHONY: race
race: ## Run the tests with the race detector, in a random order
	go test -race -shuffle=on ./...

.PHONY: bench
bench: ## Run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-once
bench-once:
	go test -run '^$$' -bench . -benchtime 1x ./...

.PHONY: docs
docs: ## Print the generated pages of docs/
	go run . docs docs

.PHONY: docs-check
docs-check:
	go run . docs --check docs

.PHONY: demo
demo: ## Watch rows flow from a fake instance into an embedded broker
	go run . demo

.PHONY: check
check: ## Everything that continuous integration checks after `make test`
	@for step in fmt-check vet lint vuln docs-check race bench-once; do \
		began=$$SECONDS; echo "== $$step"; \
		$(MAKE) --no-print-directory $$step; \
		echo "== $$step took $$((SECONDS - began)) s"; \
	done

.PHONY: long
long: ## Run the long suites and keep their log under docs/runs/
	@mkdir -p docs/runs
	@{ echo "# $$(date -u +%FT%TZ) $$(git rev-parse HEAD) $$(go version), $$(nproc) cores"; \
	   echo "# SNOWMELT_KILLS=$(SNOWMELT_KILLS) SNOWMELT_SINK_KILLS=$(SNOWMELT_SINK_KILLS) SNOWMELT_HISTORIES=$(SNOWMELT_HISTORIES) SNOWMELT_CHAOS_SEEDS=$(SNOWMELT_CHAOS_SEEDS)"; \
	   SNOWMELT_LONG=1 SNOWMELT_KILLS=$(SNOWMELT_KILLS) SNOWMELT_SINK_KILLS=$(SNOWMELT_SINK_KILLS) SNOWMELT_HISTORIES=$(SNOWMELT_HISTORIES) SNOWMELT_CHAOS_SEEDS=$(SNOWMELT_CHAOS_SEEDS) \
	   go test -count=1 -timeout 6h -tags long -v ./itest/... ./core/... 2>&1; \
	   SNOWMELT_LONG=1 $(MAKE) --no-print-directory kafka-test KAFKA_KILLS=30 KAFKA_SINK_KILLS=20 KAFKA_FLAGS=-v 2>&1; } | tee $(LONG_LOG)
	@echo "kept in $(LONG_LOG)"
