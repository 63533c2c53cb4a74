// Package judges holds a second opinion on the sink: an independent server of
// Cosmos DB, @vercel/cosmosdb-server (npm), takes what it sends, batches
// included. It does not look at keys, knows one partition key range, never
// answers 429, and charges 1 RU for everything.
//
// scripts/install-cosmosdb-server installs it, in the version that
// package-lock.json pins.
package judges
