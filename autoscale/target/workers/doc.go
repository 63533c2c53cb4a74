// Package workers scales by processes on this machine, such as consumers of
// `sluice run` with balanced partitions.
//
//	pool, err := workers.New("workers", []string{"sluice", "run", "orders.yaml"}, nil)
//	...
//	defer pool.Close()
//	err = pool.Scale(ctx, 3)
//
// A worker that dies is started again. One that is no longer wanted gets an
// interrupt, so that it can finish in good order, and is killed if that takes
// too long. Workers outlive a supervisor that is killed: the next one over the
// same directory takes them over as they are, by locks that the workers hold
// as long as they live, so none runs twice and none is forgotten.
//
// The directory keeps how many are wanted, and of each worker its lock, its
// process id and what it prints.
package workers
