// Package batch delivers a partition's events in order, batch by batch, on one goroutine: in the
// handler's transaction ([Transactional]), or with the checkpoint after the handler ([Batches]).
// The two differ in their store and their workerPolicy.
//
// To change how many events a batch has, see limit.go; the transaction, commit.go; how a batch that
// fails is split, apply.go; whose fault a failure is, brake.go and mapping.go; events that end the
// process, suspect.go; a handler that ends its transaction, halt.go; redrives, redrive.go.
package batch
