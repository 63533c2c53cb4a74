// Package cosmosdriver holds the interop tests of the driver for Cosmos DB: it
// writes, in batches too, to an independent server, @vercel/cosmosdb-server
// (npm). That server does not check keys, has one partition key range, never
// answers 429, and charges 1 RU for everything.
//
// scripts/install-cosmosdb-server installs it, in the version that
// package-lock.json pins.
package cosmosdriver
