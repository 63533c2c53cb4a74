// Command bench measures Sluice beside a loop that is written by hand, in the
// same run, on the same machine, on the same hub and database; and, as `bench
// cosmos`, from a hub into Cosmos DB (cosmos.go).
//
//	go run ./cmd/sluice/internal/proof/bench                                    # beside the loop by hand
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
// its log of progress. The loop by hand (byhand.go) uses the same client
// library, and writes the same rows and its position in one transaction a
// batch. It has no leases, no fencing, no dead letters, and does not reconnect.
//
// Reading order: main.go, trial.go, child.go; then the contenders.
package main
