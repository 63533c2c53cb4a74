// Package epk computes effective partition keys: the hash of a partition key value in
// an Azure Cosmos DB container, as upper-case hex text from "" to "FF". Accounts report
// the bounds of partition key ranges in the same form.
//
// The hashes are those of the official clients: the .NET, Java, Python and JavaScript
// ones compute them to route bulk requests. The test vectors in testdata come from the
// JavaScript and Python clients; the scripts that made them are in vectors.
package epk
