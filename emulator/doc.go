// Package emulator runs Azure services inside the process, for development and tests. The
// official client libraries work with them unmodified.
//
//	Start            an Event Hubs namespace: a [Server]
//	StartServiceBus  a Service Bus namespace with queues, topics and subscriptions: a [ServiceBus]
//	StartCosmos      a Cosmos DB account for the NoSQL API: a [Cosmos]
//	StartIssuer      an issuer of access tokens, as Entra ID: an [Issuer]
//
// A test starts a server on a free port and passes its connection string to the client:
//
//	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
//	if err != nil {
//		t.Fatal(err)
//	}
//	defer srv.Close()
//	client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "flights", nil)
//
// Event Hubs and Service Bus speak AMQP 1.0 over TCP, TLS and WebSockets. They keep
// events and messages in memory or, if a directory is configured, on disk: the server
// acknowledges only what is on disk, and it is there again after a restart. Cosmos DB
// speaks the REST protocol of gateway mode over HTTP or HTTPS and keeps documents in
// memory.
//
// # Faults
//
// Each server can inject failures: delays, throttling, dropped connections, detached links
// and lost acknowledgements, restricted to an entity and an operation. See [Fault] and
// [CosmosFault]. Test programs in other processes or languages inject them over HTTP, with
// the control endpoint (Control in the configurations):
//
//	GET    /faults             lists the faults and how often each has hit
//	POST   /faults             adds a fault
//	DELETE /faults             removes all faults
//	DELETE /faults/{id}        removes one
//
// Event Hubs and Service Bus:
//
//	POST   /faults             {"kind": "server-busy", "on": "send", "hub": "flights", "partition": "0", "times": 3, "delay": "2s"}
//	POST   /connections/drop   {} drops all connections
//	POST   /links/detach       {"hub": "flights", "partition": "0"} detaches links
//
// Event Hubs:
//
//	POST   /hubs/trim          {"hub": "flights", "partition": "0", "before": 100} removes events as retention does
//	POST   /hubs/recreate      {"hub": "flights"} deletes a hub and creates it again
//	POST   /namespace/promote  {"forced": false} promotes the other region of a geo-replicated namespace
//
// Cosmos DB:
//
//	POST   /faults             {"kind": "status", "status": 429, "retryAfter": "1s", "on": "batch", "container": "db/docs",
//	                           "range": "0", "each": false, "times": 3, "for": "10s", "delay": "2s"}
//	GET    /stats              the account's counts
//	GET    /stats/{db}/{name}  the counts of a container and its partition key ranges
//	POST   /split              {"database": "db", "container": "docs", "range": "0"} splits a range; without range, the largest
//	POST   /throughput         {"database": "db", "container": "docs", "ru": 10000} changes the RU per second
//	GET    /regions            the account's regions
//	POST   /failover           {} makes the other region of an account in two take the writes
//	POST   /key/revoke         {} makes the account refuse its key
//	POST   /key/restore        {} makes the account accept it again
package emulator

// namespace.go, peer.go, request.go and auth.go are what the AMQP servers have in common. On
// top of them are eventhubs*.go, over emulator/internal/eventhubs, and servicebus*.go, over
// emulator/internal/servicebus. cosmos*.go are apart, over emulator/internal/cosmosdb.
