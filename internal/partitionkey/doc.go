// Package partitionkey computes where a partition key belongs: the partition of an event
// hub or of a topic of Kafka, and the effective partition key in an Azure Cosmos DB
// container.
//
// An effective partition key is the hash of a partition key value, as upper-case hex text
// from "" to "FF". Accounts report the bounds of partition key ranges in the same form.
//
// The hashes are those of the official clients: the .NET, Java, Python and JavaScript
// ones compute them to route messages and bulk requests. The test vectors in testdata
// come from the JavaScript and Python clients; the scripts that made them are in vectors
// and in cmd/sluice/internal/proof/interop.
package partitionkey
