// Package workers scales the number of worker processes on this machine, such as
// `sluice run` with balanced partitions.
//
//	pool, err := workers.New("workers", []string{"sluice", "run", "orders.yaml"}, nil)
//	...
//	defer pool.Close()
//	err = pool.Scale(ctx, 3)
//
// A worker that dies is restarted. One that is no longer wanted gets an interrupt for
// a graceful stop, and is killed if that takes too long. Workers survive a supervisor
// that is killed. The next supervisor with the same directory takes them over: each
// worker holds a lock on a file as long as it lives, so no worker is started twice
// and none is lost.
//
// The directory has the wanted number of workers, and for each worker its lock, its
// process id and its output.
package workers
