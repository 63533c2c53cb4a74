# Everything here works on a fresh machine with Go. `make test` needs nothing else; `make proof` installs what its tests need.

MODULES    := $(shell sed -n "s,^\t\(\.[^ ]*\)\$$,\1/...,p" go.work)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCH       = ./cmd/sluice/internal/proof/bench
PEERS       = ./cmd/sluice/internal/proof/peers
GO_NEXT    ?= go1.27.3
TIERS       = go run ./proof/tiers
FUZZTIME   ?= 2m

.PHONY: build test proof soak test-next setup lint style staticcheck docs bench bench-peers recovery endurance mutants fuzz release-snapshot release-check clean

build: ## the binary, in bin/: static, without debugging information and without the paths of this machine
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/sluice ./cmd/sluice
	@printf 'bin/sluice has %d bytes\n' "$$(wc -c <bin/sluice)"

test: ## what needs Go alone, deterministic: at most 8 minutes on two cores from nothing
	@$(TIERS) test

proof: ## everything else that must hold, at most 30 minutes: servers, official clients, browsers, attacks. STAGE=kafka,race for single stages, STAGE=list lists them
ifeq ($(STAGE),list)
	@$(TIERS) list
else
	@$(TIERS) proof $(if $(STAGE),-stage $(STAGE))
endif

soak: ## hours of fresh seeds, attacks, endurance, fuzzing and peers; proof/tiers/soak.go has the stages
	@$(TIERS) soak $(if $(STAGE),-stage $(STAGE))

test-next: ## make test with the newer Go release
	@GOTOOLCHAIN=$(GO_NEXT) $(TIERS) test

setup: ## what make proof needs beyond Go: databases, brokers, Azurite, Azure's clients, browsers and tools; each script says what
	@$(TIERS) install

lint: style staticcheck ## style, go vet, staticcheck, known vulnerabilities
	go vet $(MODULES)
	go vet -tags asazure ./emulator ./internal/proof/asazure
	scripts/check-vulnerabilities

style: ## gofmt, import rules, tests that depend on real time or on random numbers
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change the files above"; exit 1; }
	scripts/check-imports
	go run ./proof/clocks

staticcheck:
	go run $(STATICCHECK) $(MODULES)

docs: ## the documentation's site, in bin/site: open bin/site/index.html
	@scripts/install-docs
	@NO_MKDOCS_2_WARNING=1 .dev/docs/venv/bin/python -m mkdocs build --strict --clean # with --quiet it would not count warnings

bench: ## the figures of docs/performance.md, also in bin/bench.json; then those of the packages
	@scripts/install-postgres
	@scripts/install-mariadb
	@scripts/install-sqlserver
	@scripts/install-azurite
	@mkdir -p bin
	@scripts/install-interop
	GOEXPERIMENT=jsonv2 go run $(BENCH) -json bin/bench.json
	GOEXPERIMENT=jsonv2 go run $(BENCH) writing -json bin/writing.json
	go run $(BENCH) latency -json bin/latency.json
	go run $(BENCH) cosmos -modes bulk
	go run $(BENCH) cosmos -modes point -events 1000000
	go run $(BENCH) cosmos -modes bulk -events 1000000 -ru 50000
	go test -run '^$$' -bench . -benchmem $(MODULES)

bench-peers: ## Sluice on Kafka beside a loop by hand, Redpanda Connect, Kafka Connect, the parallel consumer and Watermill, a quarter of an hour: the tables "On Kafka" of docs/performance.md, also in bin/peers.json. PEERS_FLAGS='-docs docs/performance.md' replaces them there
	@scripts/install-kafka
	@scripts/install-postgres
	@scripts/install-peers
	@mkdir -p bin
	go run $(PEERS) -json bin/peers.json $(PEERS_FLAGS)

recovery: ## after an outage of the database of 10 minutes at 20,000 events/s: how long Sluice takes to catch up, a quarter of an hour. RECOVERY_FLAGS='-rate 4000 -outage 2m' for less; the drawing is bin/recovery.svg
	@scripts/install-postgres
	@mkdir -p bin
	go run $(BENCH) recovery -svg bin/recovery.svg -json bin/recovery.json $(RECOVERY_FLAGS)

endurance: ## two hours at 20,000 events/s into PostgreSQL with faults, at most 15 minutes more, 10 GB of disk; ENDURANCE_FLAGS='-rate 3000 -duration 10m' for less; the drawing is bin/endurance.svg
	@scripts/install-postgres
	@mkdir -p bin
	go run $(BENCH) endurance -svg bin/endurance.svg -json bin/endurance.json $(ENDURANCE_FLAGS)

mutants: ## mistakes in the source, one at a time; the test of each must notice it. Prints a table
	@scripts/install-postgres
	@scripts/install-mariadb
	@scripts/install-sqlserver
	SLUICE_MUTANTS=all go test -count=1 -timeout 2h -v ./proof/mutants

fuzz: ## every fuzz target, FUZZTIME each
	@scripts/fuzz $(FUZZTIME)

release-snapshot: ## what a release consists of, for Linux on this machine's processor, in dist/
	@scripts/install-release-tools
	@scripts/release-snapshot

release-check: ## goreleaser's check of its configuration, and a build for every platform: many minutes of a CPU
	@scripts/install-release-tools --goreleaser
	.dev/release/goreleaser check
	@scripts/build-platforms

clean:
	rm -rf bin build dist .dev
