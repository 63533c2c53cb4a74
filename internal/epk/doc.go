// Package epk computes effective partition keys: the place of a partition key value in the hash space of an Azure Cosmos DB container, as the
// upper-case hex text in which the account states the bounds of its partition key ranges, "" to "FF".
//
// The hashes are those of the official clients: the .NET, Java, Python and JavaScript ones compute them to route bulk requests. The vectors in testdata come from the
// JavaScript and Python clients; the scripts are in vectors.
package epk
