# Short names for what people and CI run; `make help` lists them. Set-up is
# testharness/setup.sh's: it installs or names what a target needs.
GO           ?= go
TEST_TIMEOUT ?= 30m
FUZZ_TIME    ?= 20s
# make wire PG_VERSIONS="15 16 17 18"; empty is the server that is installed.
PG_VERSIONS  ?=
# make wire-fuzz N=100000 SEED=1; make attack N=10000 SEED=1
N            ?= 2000
SEED         ?= $(shell date +%s)
# make steps LANES=8 ALL_PAIRS=1 SEED=1; PART=50 is at one of 50 steps
LANES        ?= 4
ALL_PAIRS    ?= 0
PART         ?= 1
# make grammar TEXTS=100000 SEED=1
TEXTS        ?= 100000
# make chaos DURATION=60s SEED=1 STRAIGHT=1; MUTANT=no-verify takes a protection out, and must fail
DURATION     ?= 60s
STRAIGHT     ?=
MUTANT       ?=
# make clients CLIENTS=psql,pgx
CLIENTS      ?= all
# make mutants MUTANTS=no-verify,no-share-lock AGAINST=testharness/steps.TestSteps
MUTANTS      ?=
AGAINST      ?=
# make dashboard SHOTS=/tmp/shots TESTS=keyboard
SHOTS        ?=
TESTS        ?=
# make pg-regress SUITES=regress,isolation,libpq_pipeline,tools
SUITES       ?=
# make release ARCHS=amd64
ARCHS        ?= amd64 arm64
# make audit AUDIT_DB=file:///a/copy/of/the/database; empty is vuln.go.dev, or the module of it
AUDIT_DB     ?=
# make bench ONLY='update.*/8/' ROUNDS=5 ROUND_TIME=2
ONLY         ?=
ROUNDS       ?= 0
ROUND_TIME   ?= 0
# make bench-micro BASE=main~5
BASE         ?= HEAD
COUNT        ?= 6
# What releases are built with: a Go without the known vulnerabilities of the one that is installed.
TOOLCHAIN    := $(shell sed -n 's/^toolchain //p' go.mod)
GOLANGCI     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The commit goes into the binary where git can be asked for it.
VCS          := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test race quick lint audit fuzz grammar wire wire-fuzz attack steps chaos clients dashboard pg-regress mutants bench bench-quick bench-micro bench-profile bench-idle bench-guard bench-claims bench-marks bench-checks deploy-check release release-check clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'PG_VERSIONS="15 16 17 18" are fetched where they are not installed; without it, what is installed is taken.'

setup: ## install or name everything that the other targets need
	@testharness/setup.sh go cc postgres etcdctl python shells lint

build: ## bin/fenceproxy
	@testharness/setup.sh go
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -o bin/fenceproxy ./cmd/fenceproxy

demo: build ## a paused lock holder corrupts data, and is refused through the proxy
	@testharness/setup.sh postgres
	bin/fenceproxy demo

test: ## every test, race detector on, against real Postgres and etcd
	@testharness/setup.sh go cc postgres etcdctl python shells
	$(GO) test -race -p 2 -timeout $(TEST_TIMEOUT) ./...

race: test ## the same: tests always run under the race detector

quick: ## every test without the race detector
	@testharness/setup.sh go cc postgres etcdctl python shells
	$(GO) test -p 2 -timeout $(TEST_TIMEOUT) ./...

lint: ## gofmt, vet, import direction, golangci-lint, shellcheck
	@testharness/setup.sh go cc lint
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	cd testharness/clients/programs/golang && $(GO) mod tidy -diff && $(GO) vet ./...
	testharness/imports.sh
	$(GO) run $(GOLANGCI) run
	cd deploy/check && $(GO) mod tidy -diff
	shellcheck -x -P testharness/clients/programs deploy/*.sh deploy/compose/*.sh deploy/debian/p* testharness/*.sh testharness/bench/*.sh testharness/clients/programs/*.sh .ci/run

audit: ## known vulnerabilities in what the code calls, and whether modules are those of go.sum (AUDIT_DB=URL)
	@testharness/setup.sh go
	@GO="$(GO)" GOTOOLCHAIN=$(TOOLCHAIN) AUDIT_DB="$(AUDIT_DB)" testharness/audit.sh

deploy-check: build ## what deploy/ has, by the parsers and rules of systemd, BuildKit, Compose, Helm, Kubernetes and Prometheus
	@testharness/setup.sh go deploy
	@GO="$(GO)" deploy/check.sh

release: ## dist/: archives and Debian packages for amd64 and arm64, lists of contents, checksums
	@testharness/setup.sh go release
	@GO="$(GO)" GOTOOLCHAIN=$(TOOLCHAIN) ARCHS="$(ARCHS)" deploy/release.sh dist

release-check: release ## the same commit again, in another folder and from nothing: the same bytes; packages by Lintian
	@testharness/setup.sh lintian
	@GO="$(GO)" GOTOOLCHAIN=$(TOOLCHAIN) ARCHS="$(ARCHS)" deploy/again.sh dist

fuzz: ## each fuzz target for FUZZ_TIME (20s)
	@testharness/setup.sh go cc
	testharness/fuzz.sh $(FUZZ_TIME)

grammar: ## how SQL is read, against PostgreSQL's grammar: its own scripts, and TEXTS (100000) made of them from SEED
	@testharness/setup.sh go cc postgres
	@set -e; files=$$(testharness/fetch-regress.sh); FENCEPROXY_GRAMMAR_SUITE="$$files/src" FENCEPROXY_GRAMMAR_TEXTS=$(TEXTS) FENCEPROXY_GRAMMAR_SEED=$(SEED) \
		$(GO) test -count=1 -timeout 1h -v -run 'TestSplit_(Scripts|Mutants)$$' ./sqlrewrite

wire: ## wire scripts, straight to PostgreSQL and through the proxy, on PG_VERSIONS ("15 16 17 18")
	@testharness/setup.sh go cc postgres
	@set -e; for version in $(or $(PG_VERSIONS),installed); do \
		[ $$version = installed ] || { FENCEPROXY_PG_BIN=$$(testharness/fetch-postgres.sh $$version); export FENCEPROXY_PG_BIN; }; \
		echo "PostgreSQL $$version"; \
		(cd testharness/wire && FENCEPROXY_WIRE_PROGRESS=1 $(GO) test -race -count=1); \
	done

wire-fuzz: ## N random pipelines (2000) from SEED, the same three ways, on PG_VERSIONS
	@testharness/setup.sh go cc postgres
	@set -e; seed=$(SEED); for version in $(or $(PG_VERSIONS),installed); do \
		[ $$version = installed ] || { FENCEPROXY_PG_BIN=$$(testharness/fetch-postgres.sh $$version); export FENCEPROXY_PG_BIN; }; \
		echo "PostgreSQL $$version, seed $$seed"; \
		FENCEPROXY_WIRE_PIPELINES=$(N) FENCEPROXY_WIRE_SEED=$$seed $(GO) test -race -count=1 -timeout 0 -v -run 'TestGenerate$$' ./testharness/wire; \
	done

chaos: build ## 50 workers under faults drawn from SEED for DURATION (60s), and the checkers; STRAIGHT=1 without fencing
	@testharness/setup.sh go postgres
	$(if $(MUTANT),$(GO) run ./testharness/mutants -only $(MUTANT) -build bin/mutant,CGO_ENABLED=0 $(GO) build -o bin/chaos ./testharness/chaos/cmd)
	$(if $(MUTANT),bin/mutant/chaos -program bin/mutant/fenceproxy,bin/chaos -program bin/fenceproxy) -duration $(DURATION) -seed $(SEED) $(if $(STRAIGHT),-straight)

attack: ## N random sessions (2000) from SEED that lose their lock at some moment: no stale row, no missing answer
	@testharness/setup.sh go cc postgres
	FENCEPROXY_ATTACK_SESSIONS=$(N) FENCEPROXY_ATTACK_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run 'TestSession_StaleAtRandom$$' ./proxy

steps: ## a link cut, a proxy killed or a message held up at each step, and each two steps, of claims and writes; a token raised between any two messages
	@testharness/setup.sh go cc postgres
	@GO="$(GO)" testharness/steps.sh $(LANES) $(ALL_PAIRS) $(SEED) $(PART)

clients: ## real drivers, straight and through the proxy; writes docs/clients.md (CLIENTS=pgx,psycopg picks)
	@CLIENTS="$(CLIENTS)" testharness/setup.sh go cc postgres clients
	@cd testharness/clients && FENCE_CLIENTS="$(CLIENTS)" $(GO) test -race -count=1 -timeout 30m

dashboard: build ## the page of the admin port, in a headless Chromium on a running proxy; SHOTS=DIR keeps pictures
	@testharness/setup.sh go postgres browser
	$(GO) run ./testharness/browser -program bin/fenceproxy -shots "$(SHOTS)" -only "$(TESTS)"

pg-regress: build ## PostgreSQL 15's own test suites, straight and through the proxy (SUITES=libpq_pipeline picks)
	@testharness/setup.sh cc postgres
	@set -e; files=$$(testharness/fetch-regress.sh); FENCEPROXY_PG_BIN=/usr/lib/postgresql/15/bin $(GO) run ./testharness/pgregress -files "$$files" -suites "$(SUITES)"

mutants: ## each protection taken out, and the test that must go red: docs/proof.md (MUTANTS=no-verify picks)
	@testharness/setup.sh go cc postgres
	$(GO) run ./testharness/mutants -only "$(MUTANTS)" -against "$(AGAINST)"

bench: build ## beside PgBouncer, HAProxy and fencing by hand, three quarters of an hour; writes docs/benchmarks.md (ONLY='update.*/8/' ROUNDS=5)
	@testharness/setup.sh go postgres peers
	$(GO) build -o bin/bench ./testharness/bench
	bin/bench -page docs/benchmarks.md -only '$(ONLY)' -rounds $(ROUNDS) -seconds $(ROUND_TIME)

bench-quick: build ## a part of it in less than three minutes; only prints
	@testharness/setup.sh go postgres peers
	$(GO) build -o bin/bench ./testharness/bench
	bin/bench -quick -only '$(ONLY)' -rounds $(ROUNDS) -seconds $(ROUND_TIME)

bench-micro: ## frames, reply queue, classifier and injection, against commit BASE (HEAD: what isn't committed)
	@testharness/setup.sh go
	@testharness/bench/micro.sh '$(BASE)' $(COUNT)

bench-profile: ## where the CPU of the relay goes, under pgbench with 8 and 32 clients
	@testharness/setup.sh go postgres
	@testharness/bench/profile.sh

bench-idle: ## what IDLE_SESSIONS (5000) idle sessions cost the proxy
	@testharness/setup.sh go postgres
	$(GO) test -run '^$$' -bench Session_Idle -benchtime 1x -timeout 1h -v ./testharness/idle

bench-guard: ## what a guard costs for each row: the table of docs/guards.md
	@testharness/setup.sh go postgres
	$(GO) test -run '^$$' -bench BenchmarkGuard -benchtime 1x ./fencing

bench-claims: ## claims a second, beside etcd's own locks a second
	@testharness/setup.sh go postgres
	$(GO) test -run '^$$' -bench 'Claims$$' -benchtime 1x -timeout 1h ./testharness/claims

bench-marks: ## what MARKS (1000000) marks change, and how they are removed
	@testharness/setup.sh go postgres
	$(GO) test -run '^$$' -bench 'Marks$$' -benchtime 1x -timeout 1h ./testharness/claims

bench-checks: ## what a check takes beside MARKS (10000000) marks, against 100
	@testharness/setup.sh go postgres
	$(GO) test -run '^$$' -bench 'Check$$' -benchtime 1x -timeout 1h ./testharness/claims

clean: ## what the targets above made
	rm -rf bin dist coverage.out testharness/clients/programs/node/node_modules testharness/browser/page/node_modules
