//go:build unix

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// stage is a part of a tier: commands that run one after the other.
type stage struct {
	name     string
	needs    []string      // things of package need, installed before
	commands [][]string    // those that begin with go test are read test by test
	env      []string      // besides the run's
	budget   time.Duration // on two quiet cores; a stage that takes four times as long is ended, an hour in the computing lane
	lane     lane
	alone    bool // no other waiting stage runs beside it
	again    bool // tests that passed in make test run again: other seeds, another compiler
}

// lane is where a stage runs.
type lane int

const (
	// waiting stages wait much: for servers, leases, disks, processes that were killed. Their tests
	// depend on time, so they have the higher priority. Two run at once, three once nothing is left
	// to compute.
	waiting lane = iota
	// computing stages need CPUs and no time limit that a slow machine breaks. One runs at a time,
	// and uses what the others leave.
	computing
)

const (
	all       = "./... ./autoscale/... ./cmd/sluice/... ./emulator/... ./internal/config/... ./pipeline/... ./proof/... ./sluiceotel/..."
	proof     = "./cmd/sluice/internal/proof"
	brokers   = "./kafka ./sender/kafkasender ./internal/proof/kafkatest"
	raced     = ". ./internal/engine/... ./stamp ./sluicetest ./internal/amqp ./emulator/internal/eventhubs ./emulator/internal/servicebus ./cmd/sluice/internal/progress ./cmd/sluice/internal/loadgen ./emulator ./eventhub ./sender ./webhook ./audit ./pipeline/web"
	simulated = "./proof/sim"
	wired     = "./proof/wire"
)

// goNext is the newer of the two Go releases that must work.
var goNext = cmp.Or(os.Getenv("GO_NEXT"), "go1.27.3")

// leftToProof are packages that make test does not compile: nearly all of their tests need more
// than Go and SQLite, or, in scale, minutes of a CPU.
var leftToProof = []string{
	proof + "/attack", proof + "/bench", proof + "/chromium", proof + "/datasets", proof + "/debezium", proof + "/interop/...", proof + "/kubernetes", proof + "/peers",
	proof + "/platforms", proof + "/release", proof + "/silence", "./internal/proof/azurite", "./proof/crash", "./proof/outages", "./internal/proof/kafkatest",
	"./internal/proof/mariadbtest", "./internal/proof/pgtest", "./proof/scale", "./internal/proof/sqlservertest", "./internal/proof/testserver",
}

// The packages of the stages of make proof that are not listed one by one.
var (
	stores    = []string{"./sqlstore/...", "./pgstore/...", "./outbox", "./blobstore/...", "./proof/outages", "./internal/proof/pgtest", "./internal/proof/mariadbtest", "./internal/proof/sqlservertest", "./internal/proof/azurite"}
	pipelines = []string{"./pipeline/...", "./internal/config/...", "./audit/..."}
	elsewhere = slices.Concat(strings.Fields(brokers), stores, pipelines, []string{simulated, wired, "./proof/mutants"})
	databases = []string{"postgres", "mariadb", "sqlserver"}
)

var tiers = map[string][]stage{
	"test": {
		{name: "style", budget: time.Minute, commands: commands("make --no-print-directory style")},
		// What takes long without needing CPUs begins first, beside the compiler.
		{name: "tests", budget: 6 * time.Minute, commands: commands("go test -p 3 -timeout 5m ./eventhub ./cmd/sluice/internal/targetaudit ./proof/mutants ./pipeline ./kafka ./cosmos " +
			all + exclusion(leftToProof))},
		{name: "vet", budget: 3 * time.Minute, commands: commands("go vet "+all, "go vet -tags asazure ./emulator ./internal/proof/asazure")},
	},
	"soak": soak,
	"proof": {
		// It waits more than it computes, and needs the computing lane beside it, not other tests.
		{name: "attack", needs: attacked, budget: 5 * time.Minute, alone: true,
			commands: commands("go test -timeout 30m -parallel 4 " + proof + "/attack")},
		{name: "alerts", needs: []string{"prometheus"}, budget: time.Minute, commands: commands("scripts/check-alerts")},
		{name: "command", needs: append([]string{"kafka", "azurite", "clients", "flights", "prometheus"}, databases...), budget: 10 * time.Minute,
			commands: commands("go test -p 1 -parallel 4 -timeout 30m ./cmd/sluice ./cmd/sluice/internal/... -" + proof + "/...")},
		{name: "stores", needs: append([]string{"azurite", "sqlfluff"}, databases...), budget: 9 * time.Minute,
			commands: commands("go test -p 1 -parallel 6 -timeout 30m " + strings.Join(stores, " "))},
		{name: "pipelines", needs: append([]string{"azurite", "kafka", "sqlfluff"}, databases...), budget: 3 * time.Minute,
			commands: commands("go test -p 1 -timeout 30m " + strings.Join(pipelines, " "))},
		{name: "autoscale", needs: append([]string{"azurite", "kafka", "prometheus"}, databases...), budget: 3 * time.Minute,
			commands: commands("go test -p 1 -timeout 30m ./autoscale/...")},
		{name: "library", needs: []string{"postgres"}, budget: 4 * time.Minute, commands: commands("go test -p 1 -timeout 30m ./... ./emulator/... ./proof/... ./sluiceotel/..." + exclusion(elsewhere))},
		{name: "silence", needs: []string{"postgres", "azurite", "attack-tools"}, budget: 2 * time.Minute, commands: commands("go test -timeout 30m " + proof + "/silence")},
		{name: "docs", needs: []string{"postgres", "sqlfluff", "chromium"}, budget: 2 * time.Minute, commands: commands("go test -timeout 30m " + proof + "/docs")},
		{name: "tools", needs: append([]string{"kafka", "datasets"}, databases...), budget: 2 * time.Minute, commands: commands("go test -timeout 30m " + proof + "/datasets " + proof + "/bench " + proof + "/peers " + proof + "/platforms " + proof + "/netns " + proof + "/measure")},
		{name: "go-next", budget: 2 * time.Minute, env: []string{"GOTOOLCHAIN=" + goNext}, again: true, commands: commands("go test -timeout 10m . ./internal/engine/... ./stamp ./driver ./eventhub ./sluicetest")},
		{name: "cosmos", budget: time.Minute, commands: commands("go run " + proof + "/bench cosmos -events 200000 -modes bulk")},
		{name: "kafka", needs: []string{"kafka", "postgres", "debezium"}, budget: 4 * time.Minute,
			commands: commands("go test -p 1 -parallel 12 -timeout 30m "+brokers, "go test -timeout 10m "+proof+"/debezium")},
		{name: "interop", needs: []string{"clients", "cosmos-server", "chromium", "postgres", "azurite"}, budget: 6 * time.Minute,
			commands: commands("go test -p 1 -timeout 10m " + proof + "/interop/... " + proof + "/chromium")},
		{name: "kubernetes", needs: []string{"kubernetes"}, budget: time.Minute, commands: commands("go test -timeout 10m " + proof + "/kubernetes")},
		// Last, when least else runs: Go interrupts a goroutine after 10 ms, also if the process
		// had no CPU, and then the traces differ.
		{name: "trace", budget: time.Minute, alone: true, env: []string{"GODEBUG=tracebacklabels=1"}, again: true,
			commands: commands("go test -timeout 20m -run OneTrace$ " + simulated)},

		{name: "staticcheck", budget: 3 * time.Minute, lane: computing, commands: commands("make --no-print-directory staticcheck")},
		{name: "vulnerabilities", budget: 2 * time.Minute, lane: computing, commands: commands("scripts/check-vulnerabilities")},
		{name: "simulation", budget: 6 * time.Minute, lane: computing, env: []string{"GODEBUG=tracebacklabels=1", "SLUICE_WIRE_WORLDS=60"}, again: true,
			commands: commands("go test -timeout 1h -skip OneTrace$ "+simulated, "go test -timeout 1h "+wired)},
		{name: "simulation-race", budget: 2 * time.Minute, lane: computing, env: []string{"CGO_ENABLED=1"}, again: true,
			commands: commands("go test -race -timeout 1h -run TestFree$ " + simulated)},
		{name: "simulation-bounds", budget: time.Minute, lane: computing, again: true, // each bound is a few: its overflow must be reported
			commands: commands("go test -timeout 1h -tags sluice_small_bounds -run TestChains($|Bounds) " + simulated)},
		// How much memory a test takes says nothing here.
		{name: "race", budget: 6 * time.Minute, lane: computing, env: []string{"CGO_ENABLED=1", need.Variable + "=realtime"}, again: true,
			commands: commands("go test -race -timeout 1h -skip ^Test(Unauthenticated)?Memory$ " + raced)},
		{name: "examples", needs: databases, budget: 3 * time.Minute, lane: computing, env: []string{"GOWORK=off"}, commands: commands("go -C examples/go test ./...")},
		{name: "mutants", needs: databases, budget: 6 * time.Minute, lane: computing, again: true, env: []string{"SLUICE_MUTANTS=the fence does not check the position|histories are not compared"}, // one for each store
			commands: commands("go test -timeout 1h ./proof/mutants")},
		{name: "release", needs: []string{"release"}, budget: 5 * time.Minute, lane: computing, commands: commands("go test -timeout 1h " + proof + "/release")},
		{name: "site", budget: time.Minute, lane: computing, commands: commands("make --no-print-directory docs")},
	},
}

// commands splits lines into words.
func commands(lines ...string) [][]string {
	list := make([][]string, len(lines))
	for i, line := range lines {
		list[i] = strings.Fields(line)
	}
	return list
}

// exclusion are the words of a go test command that leave packages out.
func exclusion(packages []string) string {
	words := ""
	for _, p := range packages {
		words += " -" + p
	}
	return words
}

// list prints the stages.
func list(w io.Writer) {
	for _, tier := range []string{"test", "proof", "soak"} {
		fmt.Fprintf(w, "make %s\n", tier)
		for _, s := range tiers[tier] {
			fmt.Fprintf(w, "  %-16s %4.0f min  %s\n", s.name, s.budget.Minutes(), strings.Join(s.needs, " "))
			for _, c := range s.commands {
				fmt.Fprintf(w, "  %16s           %s\n", "", strings.Join(append(s.env[:len(s.env):len(s.env)], c...), " "))
			}
		}
	}
}
