// Command bench measures Sluice beside a loop that is written by hand, in the
// same run, on the same machine, on the same hub and database.
//
// The hub is the emulator, in a process of its own and filled beforehand. Each
// run has a consumer process of its own and a fresh database; contenders take
// turns, so that what else the machine does hits all of them. The clock runs
// from the moment when all partitions may be opened to the return of the last
// commit; afterwards the rows are counted, and a run with a row too many or
// too few is an error.
//
// Sluice goes the way of `sluice run`: a pipeline file, parsed and opened, with
// its monitor. The loop by hand (byhand.go) uses the same client library, and
// writes the same rows and its position in one transaction a batch. It has no
// leases, no fence, no dead letters, and no answer to a lost connection.
//
// Reading order: main.go, trial.go, child.go; then the contenders.
package main
