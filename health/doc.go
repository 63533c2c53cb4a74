// Package health shows whether a consumer is well: [Probes] answers the probes of
// Kubernetes for a process, and a [Watcher] looks for warnings about a consumer
// group from outside.
//
//	probes := health.NewProbes(nil)
//	// sluice.Config{Observer: driver.Observers(probes, …)}
//	http.Handle("/", probes) // GET /livez, GET /readyz
//
// A process is live unless the engine has stopped moving: a lease that it holds
// was neither renewed nor released for twice as long as it lasts. Then only a
// restart helps.
//
// A process is ready once its lease store has answered, whether or not there was a
// partition to acquire: a new process may have to wait for the partitions of one
// that ends when this one is ready. It is no longer ready while something keeps
// failing for longer than [ProbesConfig].Recovery. A halted partition does not make
// the process unready: the other partitions continue, and a restart would not help.
// The answer's text lists it. The text also lists a stalled partition, for example one
// whose handler has not returned; if it has been stalled for longer than
// [ProbesConfig].StalledFor, the process is not ready.
//
// A watcher reports what an operator must know before events are lost: partitions
// without an owner, checkpoints that do not move, retention that comes near.
//
//	w := health.NewWatcher(source, leases, checkpoints, nil)
//	w.Run(ctx, time.Minute, func(r health.Report) { … })
package health
