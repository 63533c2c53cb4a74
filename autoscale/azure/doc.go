// Package azure joins the autoscaler's parts by Azure Storage queues, and keeps
// what it remembers in an Azure table, so that collector, logic and scaler can
// run on different machines.
//
//	store, err := azure.OpenStore(ctx, &azure.Config{Connection: connection})
//	metrics, err := azure.OpenQueue(ctx, autoscale.MetricsQueue, &azure.Config{Connection: connection})
//
// # Queues
//
// Messages are JSON, as base64, which is what Azure's own tools expect. One that
// can't be used goes to the queue NAME-poison, with the reason; that is theirs
// to do who use the queue, which count deliveries too.
//
// # The table
//
// Everything about a resource is in the partition of its name, in the table
// Scaling, so that a change to it is one transaction:
//
//	row key           properties
//	METRIC            Metric, History (JSON of its window), LastAction
//	~memory           Memory (JSON of all but the windows), Version, Metrics
//	~outcome          Number, Outcome (JSON)
//	~record-NUMBER    At, Record (JSON); NUMBER falls, so that the newest comes first
//
// The row ~memory is replaced only if its ETag is the one that was read. JSON
// that is too long for a property goes on in History1, History2, and so on. In
// keys, what is not a letter, a digit, a hyphen, a period or an underscore is
// written =HH, byte by byte.
package azure
