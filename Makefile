# Everything here works on a fresh machine with Go; `make test` installs what the tests need beyond that.

MODULES     = ./... ./autoscale/... ./cmd/sluice/...
TAGS        = postgres,mariadb,sqlserver,kafka,azurite,interop,chromium,kubernetes,release,upgrade
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCH       = ./cmd/sluice/internal/proof/bench
PEERS       = ./cmd/sluice/internal/proof/peers
GO_NEXT    ?= go1.27.3
FUZZTIME   ?= 2m

.PHONY: build test test-next setup setup-packages setup-kubernetes lint docs bench bench-peers recovery endurance soak mutants fuzz release-snapshot release-check clean

build: ## the binary, in bin/: static, and without the paths of this machine
	CGO_ENABLED=0 go build -trimpath -o bin/sluice ./cmd/sluice

test: ## everything that must hold, nothing skipped
	@GO_NEXT=$(GO_NEXT) scripts/test

test-next: ## the same, all of it with the newer Go release
	@GO_NEXT=$(GO_NEXT) GOTOOLCHAIN=$(GO_NEXT) scripts/test

setup: setup-packages setup-kubernetes ## what the tests need beyond Go: databases, brokers, Azurite, Azure's clients, browsers and tools; each script says what

setup-packages: # what waits for the network
	@scripts/install-postgres
	@scripts/install-mariadb
	@scripts/install-sqlserver
	@scripts/install-kafka
	@scripts/install-azurite
	@scripts/install-attack-tools
	@scripts/install-interop
	@scripts/install-sqlfluff
	@scripts/install-cosmosdb-server
	@scripts/install-chromium
	@scripts/install-prometheus
	@scripts/install-docs
	@scripts/install-release-tools
	@scripts/fetch-flights

setup-kubernetes: # what compiles
	@scripts/install-kubernetes

lint: ## gofmt, go vet, staticcheck, and who imports whom
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change the files above"; exit 1; }
	scripts/check-imports
	go vet -tags $(TAGS) $(MODULES)
	go vet -tags $(TAGS),asazure,interop_java,interop_python ./emulator ./internal/proof/asazure ./cmd/sluice/internal/proof/interop/...
	go run $(STATICCHECK) -tags $(TAGS) $(MODULES)

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
	go test -tags postgres,azurite -run '^$$' -bench . -benchmem $(MODULES)

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

soak: ## hours of fresh seeds and of attacks; scripts/soak says what bounds them
	@scripts/soak

mutants: ## mistakes in the source, one at a time; the test of each must notice it. Prints a table
	@scripts/install-postgres
	@scripts/install-mariadb
	@scripts/install-sqlserver
	SLUICE_MUTANTS=all go test -count=1 -timeout 2h -v ./internal/proof/mutants

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
