// Package emulator has embedded servers for development and tests, with which the official client libraries work unmodified:
//
//	Start            event hubs: a [Server]
//	StartServiceBus  queues, topics and subscriptions: a [ServiceBus]
//	StartCosmos      a Cosmos DB account: a [Cosmos]
//
// The first two speak AMQP 1.0 as Azure does, over TCP, TLS and WebSockets, and keep what they accept in memory or in a directory. What is in
// a directory is on disk before the client learns that it was accepted.
//
//	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
//	...
//	defer srv.Close()
//	client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "flights", nil)
//
// All three have faults happen on demand.
//
// # Reading order
//
// front.go, peer.go, request.go and auth.go are what the AMQP servers have in common; behind them are eventhubs*.go over emulator/internal/eventhubs, and
// servicebus*.go over emulator/internal/servicebus. cosmos*.go stand apart, over emulator/internal/cosmosdb.
package emulator
