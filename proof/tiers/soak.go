//go:build unix

package main

import "time"

// soak runs for hours, with seeds from the clock: the run prints SEED, and SLUICE_SEED repeats it.
// A seed that is red becomes a fixed seed of make test. Each variable of a stage can be set for the
// run, such as SLUICE_SIM_SEEDS=1000 make soak STAGE=simulation.
var soak = []stage{
	{name: "simulation", budget: 3 * time.Hour, commands: commands("go test -timeout 0 -run TestSeeds$|TestStreams$|TestBatchWorlds$|TestChains$|TestTruncations$ " + simulated),
		env: []string{"GODEBUG=tracebacklabels=1", "SLUICE_SIM_SEEDS=100000", "SLUICE_SIM_STREAMS=100000", "SLUICE_SIM_BATCH_WORLDS=100000", "SLUICE_SIM_CHAINS=5000", "SLUICE_SIM_TRUNCATIONS=20000"}},
	{name: "drivers", budget: 3 * time.Hour, env: []string{"SLUICE_WIRE_WORLDS=20000"}, commands: commands("go test -timeout 0 " + wired)},
	{name: "mutants", needs: []string{"postgres", "mariadb", "sqlserver", "azurite"}, budget: 2 * time.Hour, env: []string{"SLUICE_MUTANTS=all"},
		commands: commands("go test -timeout 0 ./proof/mutants")},
	{name: "attack-postgres", needs: attacked, budget: time.Hour, env: []string{attackPlan + "fenced=50"}, commands: commands("go test -timeout 0 -run ^TestAttack$ " + proof + "/attack")},
	// MariaDB ends the session of a paused owner, so that the fence has nothing to refuse.
	{name: "attack-mariadb", needs: attacked, budget: time.Hour, env: []string{attackPlan + "fenced=0"}, commands: commands("go test -timeout 0 -run ^TestMariaDB " + proof + "/attack")},
	{name: "attack-sqlserver", needs: attacked, budget: time.Hour, env: []string{attackPlan + "fenced=50"}, commands: commands("go test -timeout 0 -run ^TestSQLServer " + proof + "/attack")},
	{name: "attack-kafka", needs: attacked, budget: 2 * time.Hour, env: []string{"SLUICE_ATTACK=seed=$SEED events=500000 rate=1000 consumers=100 pauses=60 fenced=10 jumps=20 commits=200 crashes=10 blackholes=20 resets=20 unplugs=20 brokers=120 disks=6"},
		commands: commands("go test -timeout 0 -run ^TestKafka$ " + proof + "/attack")},
	{name: "altered", needs: []string{"postgres", "mariadb", "sqlserver"}, budget: time.Hour, env: []string{"SLUICE_ALTERED_FOR=300s"},
		commands: commands("go test -timeout 0 -run Altered|Revoked|ReadOnly ./pgstore ./sqlstore")},
	{name: "brokers", needs: attacked, budget: time.Hour, env: []string{"SLUICE_ATTACK_CLUSTER=1", "SLUICE_ATTACK_TRUNCATIONS=5"},
		commands: commands("go test -timeout 0 -run ^TestCluster$|^TestKafkaTruncation " + proof + "/attack")},
	{name: "debezium", needs: []string{"kafka", "postgres", "debezium"}, budget: 30 * time.Minute, env: []string{"SLUICE_DEBEZIUM_CHANGES=200000"},
		commands: commands("go test -timeout 0 " + proof + "/debezium")},
	{name: "disks", needs: attacked, budget: time.Hour, env: []string{"SLUICE_ATTACK_DISK=20"}, commands: commands("go test -timeout 0 -run ^TestDisk " + proof + "/attack")},
	{name: "memory", budget: 10 * time.Minute, env: []string{"SLUICE_MEMORY=1"}, commands: commands("go test -timeout 0 -run ^TestMemory$ ./eventhub")},
	{name: "decoding", budget: time.Hour, env: []string{"SLUICE_DECODED=1000000"}, commands: commands("go test -timeout 0 -run ^TestDecodeAtRandom$ ./eventhub")},
	{name: "messages", budget: time.Hour, env: []string{"SENDER_SCALE=20"}, commands: commands("go test -timeout 0 -run ^TestSendAll ./sender")},
	{name: "outbox", needs: []string{"postgres", "mariadb", "sqlserver"}, budget: 4 * time.Hour, env: []string{"SLUICE_OUTBOX=large"},
		commands: commands("go test -timeout 0 -run ^TestWriters$|^TestLostCommits$ ./outbox")},
	{name: "stages", needs: []string{"postgres"}, budget: time.Hour, env: []string{"SLUICE_STAGES_ROUNDS=20"}, commands: commands("go test -timeout 0 -run ^TestEachStageIsKilled ./cmd/sluice")},
	{name: "changes", needs: []string{"postgres", "mariadb", "sqlserver"}, budget: 2 * time.Hour, env: []string{"SLUICE_CHANGES_KILLS=500", "SLUICE_EVERY_DATABASE=1"},
		commands: commands("go test -timeout 0 -run ^TestChangesByKeyUnderKills ./cmd/sluice")},
	{name: "upgrade", needs: []string{"postgres", "mariadb", "sqlserver", "azurite"}, budget: 30 * time.Minute, env: []string{"SLUICE_UPGRADE_FROM=$UPGRADE"},
		commands: commands("go test -timeout 0 -run ^TestUpgrade ./cmd/sluice")},
	{name: "audit", budget: time.Hour, env: []string{"AUDIT_EVENTS=4200000"}, commands: commands("go test -timeout 0 -run ^TestScale ./audit")},
	{name: "telemetry", budget: 10 * time.Minute, env: []string{"SLUICE_TELEMETRY_SETS=10000"}, commands: commands("go test -timeout 0 -run ^TestCoverage ./cmd/sluice/internal/telemetry")},
	{name: "balance", budget: time.Hour, env: []string{"SLUICE_BALANCED_WORLDS=500", "SLUICE_BALANCED_FIRST=$SEED"}, commands: commands("go test -timeout 0 -run ^TestBalancedAtRandom ./internal/engine/group")},
	{name: "autoscaler", needs: []string{"azurite"}, budget: time.Hour, env: []string{"SLUICE_AUTOSCALE_SEEDS=500", "SLUICE_AUTOSCALE_FIRST=$SEED", "SLUICE_CHAOS=5m"},
		commands: commands("go test -timeout 0 -run ^TestChaos ./autoscale", "go test -timeout 0 -run ^TestPartsAreKilled ./autoscale/azure")},
	{name: "every-database", needs: []string{"postgres", "mariadb", "sqlserver", "kafka"}, budget: time.Hour, env: []string{"SLUICE_EVERY_DATABASE=1"},
		commands: commands("go test -timeout 0 -run Test.*/sqlserver$ ./cmd/sluice", "go test -timeout 0 -run TestSQLServer|Handle ./sqlstore", "go test -timeout 0 -run TestSQLServer ./pipeline", "go test -timeout 0 -run TestWritingOnServers "+proof+"/bench")},
	// ExampleSink shows a sink without the engine that repeats what a busy server refuses.
	{name: "as-azure", needs: []string{"postgres", "azurite"}, budget: time.Hour, env: []string{"GOFLAGS=-trimpath -tags=asazure"},
		commands: commands("go test -timeout 0 -skip ^ExampleSink$ . ./audit ./cosmos ./emulator/... ./eventhub ./pipeline ./sender ./proof/crash ./autoscale/source/... ./autoscale/target/cosmos ./cmd/sluice ./cmd/sluice/internal/check " + proof + "/silence")},
	{name: "clients", needs: []string{"clients", "java-clients", "python-suites", "cosmos-server", "azurite"}, budget: 2 * time.Hour, env: []string{"SLUICE_EVENTHUBS_SUITE=all", "SLUICE_SERVICEBUS_SUITE=all"},
		commands: commands("go test -timeout 0 " + proof + "/interop/...")},
	{name: "keda", budget: time.Hour, env: []string{"GOWORK=off"}, commands: commands("go -C cmd/sluice/internal/proof/keda test -count=1 .")},
	{name: "fuzz", budget: 4 * time.Hour, commands: commands("scripts/fuzz 2m")},
	{name: "endurance", budget: 3 * time.Hour, commands: commands("make --no-print-directory endurance")},
	{name: "peers", budget: time.Hour, commands: commands("make --no-print-directory bench-peers")},
}

const attackPlan = "SLUICE_ATTACK=seed=$SEED events=200000 rate=1000 kills=500 pauses=300 jumps=100 commits=1000 crashes=50 blackholes=100 resets=100 unplugs=100 "

var attacked = []string{"postgres", "mariadb", "sqlserver", "kafka", "attack-tools"}
