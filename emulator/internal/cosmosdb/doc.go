// Package cosmosdb is an embedded Azure Cosmos DB account for the NoSQL API: databases,
// containers, documents, queries and batches over the REST protocol that the official
// clients speak in gateway mode. As on Azure, documents are distributed over physical
// partitions by the hash of their partition key, their effective partition key; each
// physical partition has one partition key range. Every operation is charged in request
// units (RU) against the partition's share of the container's throughput. Operations
// above it are answered with 429.
//
// # Charges
//
// With KB the size of a document as the client sent it, in KiB, at least 1:
//
//	size             1 + (KB-1)/11
//	read             1.00 × size
//	create           4.95 × size + 0.19 for each value in the document and each of the 4 system properties
//	upsert, replace  of a document that exists 9.90 × size + 0.38, otherwise as create
//	patch            as replace
//	delete           as create
//	query            2.30 for each partition + 0.30 × size of the page of results
//	errors           1.00 not found; 1.24 conflict, failed precondition or invalid document;
//	                 0.38 throttled, which the partition's budget isn't charged
//
// A document of 1 KB with id, key and payload costs 4.95 + 7 × 0.19 = 6.28 RU to write.
// Sources: Microsoft's table of RUs by size (1 KB: read 1, write 5; 100 KB: read 10, write
// 50; without index) gives the slope. That a replacement costs twice an insertion is
// documented, too. 0.19 RU for each indexed value is what accounts charge with the default
// policy. In containers whose indexing mode is none, values cost nothing. Azure's own
// charges differ by a few percent.
//
// # Limits
//
// Documents are in memory, outside of the Go heap, and are gone when the account is closed.
// There are no stored procedures, triggers, user-defined functions, change feed of
// documents and resource tokens. Of a container's policies there are the indexing mode, time
// to live and unique keys; others are refused. Package query describes the supported part of
// the query language.
package cosmosdb
