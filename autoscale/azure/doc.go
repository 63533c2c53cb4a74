// Package azure has queues in Azure Storage and a store in an Azure table, so that
// collector, logic and scaler can run on different machines.
//
//	store, err := azure.OpenStore(ctx, &azure.Config{Connection: connection})
//	metrics, err := azure.OpenQueue(ctx, azure.QueuePrefix("orders")+autoscale.MetricsQueue, &azure.Config{Connection: connection})
//
// # Queues
//
// The resources of an account have queues of their own if their names begin with
// [QueuePrefix]. Two resources that share queues would put each other's messages aside.
//
// Messages are JSON, encoded as base64, as Azure's own tools expect. The parts move a
// message that they cannot use, or that was received too often, to the queue
// NAME-poison, with the reason.
//
// # The table
//
// All rows of a resource are in one partition of the table Scaling, so that a change
// is one transaction. The partition key is the resource's name:
//
//	row key           properties
//	METRIC            Metric, History (JSON of its window), LastAction
//	~memory           Memory (JSON of the state without windows), Version, Metrics
//	~outcome          Number, Outcome (JSON)
//	~lease            Lease (JSON): which process works on the resource, from the row's Timestamp on
//	~record-NUMBER    At, Record (JSON); NUMBER descends, so that the newest record comes first
//
// At the first start, without the row ~memory, the state of the published autoscaler is taken over:
// its rows have the metric's name as row key, and the property SerializedState.
//
// The row ~memory is replaced only if its ETag is the one that was read. JSON that is
// too long for one property continues in History1, History2, and so on. In keys, each
// byte that is not a letter, digit, hyphen, period or underscore is written =HH.
package azure
