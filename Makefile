# Everything here works on a fresh machine with Go; `make test` installs what the tests need beyond that.

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME   ?= 2m

.PHONY: build test setup lint bench soak fuzz clean

build: ## the binary, in bin/
	go build -o bin/sluice ./cmd/sluice

test: ## everything that must hold, nothing skipped
	@scripts/test

setup: ## what the tests need beyond Go: PostgreSQL, Azurite, strace, Azure's clients for JavaScript and Python, Chromium, the flight records
	@scripts/install-postgres
	@scripts/install-azurite
	@scripts/install-attack-tools
	@scripts/install-interop
	@scripts/install-cosmosdb-server
	@scripts/install-chromium
	@scripts/fetch-flights

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change the files above"; exit 1; }
	go vet -tags postgres,azurite,judges,chromium ./...
	go run $(STATICCHECK) -tags postgres,azurite,judges,chromium ./...

bench: ## the figures of docs/performance.md, also in bin/bench.json; then those of the packages
	@scripts/install-postgres
	@scripts/install-azurite
	@mkdir -p bin
	@scripts/install-interop
	GOEXPERIMENT=jsonv2 go run ./cmd/sluice/internal/proof/bench -json bin/bench.json
	go run ./cmd/sluice/internal/proof/bench cosmos -modes bulk
	go run ./cmd/sluice/internal/proof/bench cosmos -modes point -events 1000000
	go run ./cmd/sluice/internal/proof/bench cosmos -modes bulk -events 1000000 -ru 50000
	go test -tags postgres,azurite -run '^$$' -bench . -benchmem ./...

soak: ## hours of fresh seeds and of attacks; scripts/soak says what bounds them
	@scripts/soak

fuzz: ## every fuzz target, FUZZTIME each
	@scripts/fuzz $(FUZZTIME)

clean:
	rm -rf bin .dev
