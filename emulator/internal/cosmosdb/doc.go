// Package cosmosdb is an embedded Azure Cosmos DB account for the NoSQL API: databases, containers, documents, queries and batches over the REST
// protocol that the official clients speak in gateway mode. Documents are spread over physical partitions by the hash of their partition key, as
// Azure does it, and every operation is charged in request units (RU) against the partition's share of the container's throughput; what is beyond
// it is answered with 429.
//
// # Charges
//
// With KB being a document's size in kibibytes, as it was written, but at least 1:
//
//	size             1 + (KB-1)/11
//	read             1.00 × size
//	create           4.95 × size + 0.19 for each value in the document and each of the 4 properties that the account adds
//	upsert, replace  the same; over a document that exists 9.90 × size + 0.38
//	delete           as creating it
//	query            2.30 for each partition + 0.30 × size of what it returns, in pages
//	refused          1.00 not found, 1.24 conflict, precondition or invalid document, 0.38 throttled, which counts for nothing
//
// A document of 1 KB with id, key and payload costs 4.95 + 7 × 0.19 = 6.28 RU to write. Sources: Microsoft's table of RUs by size (1 KB: read 1,
// write 5; 100 KB: read 10, write 50; without index) gives the slope; that a replacement costs twice an insertion is documented too; 0.19 RU for each
// indexed value is what accounts charge with the default policy. Containers whose indexing mode is none pay nothing for values. Azure's own charges
// differ by a few percent.
//
// # Limits
//
// Documents are in memory, outside of the Go heap, and gone at the end. There are no stored procedures, triggers, functions, patches, change
// feed of documents, time to live, unique keys and resource tokens; queries are what the package's query language says.
package cosmosdb
