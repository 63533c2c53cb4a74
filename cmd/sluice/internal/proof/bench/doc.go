// Command bench measures Sluice beside a loop that is written by hand, in the
// same run, on the same machine, on the same hub and database: how many events a
// second, and as `bench latency` how long one takes (latency.go). As `bench writing` it
// measures what a database takes, and how much of that Sluice uses (writing.go). Alone it
// measures Sluice as `bench recovery` after an outage of the database (recovery.go), as `bench
// endurance` for hours with faults (endurance.go), and as `bench cosmos` from a hub
// into Cosmos DB (cosmos.go).
//
//	go run ./cmd/sluice/internal/proof/bench                                    # beside the loop by hand
//	go run ./cmd/sluice/internal/proof/bench writing                            # each database's own bulk way, Sluice from memory
//	go run ./cmd/sluice/internal/proof/bench latency                            # at 1 to 50,000 events/s, and idle
//	go run ./cmd/sluice/internal/proof/bench recovery -svg recovery.svg         # 10 minutes, 20,000 events/s
//	go run ./cmd/sluice/internal/proof/bench endurance -svg endurance.svg       # two hours, 20,000 events/s
//	go run ./cmd/sluice/internal/proof/bench cosmos                             # 4,200,000 events, in bulk
//	go run ./cmd/sluice/internal/proof/bench cosmos -events 1000000 -modes bulk,point
//	go run ./cmd/sluice/internal/proof/bench cosmos -events 1000000 -ru 50000   # paced by RU
//
// The hub is the emulator, in a process of its own and filled beforehand. Each
// run has a consumer process of its own and a fresh database; the contenders
// take turns, so that other load on the machine affects all of them. The clock
// runs from the moment when all partitions may be opened to the return of the
// last commit; afterwards the rows are counted, and a run with a row too many
// or too few is an error.
//
// Sluice runs as `sluice run` does: a pipeline file, parsed and opened, with
// its log of progress, and reads by its own receiver. The loop by hand (byhand.go)
// reads by Azure's SDK, and writes the same rows and its position in one transaction
// a batch. It has no leases, no fencing, no dead letters, and does not reconnect.
//
// Recovery and endurance run in a scene (scene.go): a feed of numbered events, the
// hub, consumer processes that go on whatever fails, and a PostgreSQL behind a proxy
// that cuts connections. At the end the ids in the table are counted with a bit each
// (tally.go).
//
// Reading order: main.go, trial.go, child.go; then the contenders.
package main
