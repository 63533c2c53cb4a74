// Package cosmos writes documents to Azure Cosmos DB for NoSQL: a
// [driver.Sink] with the bulk mode that the official Go SDK lacks.
//
//	sink, err := cosmos.New(endpoint, key, "db", "docs", nil)
//	…
//	delivery := sluice.AtLeastOnce(store, func(_ context.Context, e *driver.Event) ([]cosmos.Document, error) {
//		return []cosmos.Document{{ID: …, PartitionKey: []any{…}, Body: e.Body}}, nil
//	}, sink, nil)
//
// # Bulk
//
// Documents queue by physical partition. They are sent in batches of up to 100
// operations or 2 MB, as in the .NET, Java and JavaScript SDKs. The account executes
// the operations one by one, and each has its own status and charge. A batch is sent
// when it is full, when its oldest document has waited for [Config.FlushAfter], or
// as soon as no request to the partition is in flight. After a split, documents of a
// range that no longer exists go to the new ranges. That does not count as a failed
// attempt.
//
// The number of requests in flight to a physical partition adapts to its responses:
// one more for each round without an error, half after a 429. With [Config.RU],
// requests are paced so that 429 is rare.
//
// # Outcomes
//
// The sink never retries by itself. Its error says what the engine must do.
//
//   - [driver.RetryAfter]: 429 with the account's retry-after, 408, 424, 449, 503, a
//     timeout, a broken connection, and 410 during a split or move.
//   - [driver.Reject]: errors of one document. A 400 of its own, 409 on [Create], 404
//     on [Replace] and [Patch], 413 of a document sent alone, a partition key that differs from
//     the body's, a full logical partition (403, sub-status 1014), and what cannot be
//     a document at all.
//   - an error without a mark, which counts as an attempt: 409 on other operations, where another
//     document has the same value at a unique key, perhaps not for long. The error names the paths
//     of the container's unique keys.
//   - [driver.Outage]: errors of the account, the container or the network. 401, 403,
//     404 of the container, host names, certificates, other 5xx.
//
// A batch that gets 413, or 400 as a whole, is halved until the document that causes
// it is found. That document is rejected only if the account also refuses it in a
// request of its own.
//
// # At least once, and conditional writes
//
// Without a [Source] a document is written at least once, and the last write wins. A
// repetition after a crash, or a late write of an owner that has lost its partition,
// can replace a newer event's document with an older one's, until the newer event is
// repeated too.
//
// With a [Source] that cannot happen. The document records the position of its
// event, and replaces only documents of older events of the same partition and log.
// An event that is not newer succeeds without a write. Cosmos DB has no condition on
// the contents of a replaced document, but one on its version (If-Match with an
// ETag). So the sink creates the document, and if it exists, the sink reads it and
// replaces exactly the version that it has read. It caches the versions that it wrote
// or read ([Config.CachedVersions]). The cost, compared with an unconditional upsert:
//
//   - a new document: nothing;
//   - a document in the cache: nothing, and a repetition costs no request at all;
//   - any other existing document: a refused create and a read, about 2.3 RU, and
//     two more round trips;
//   - the property [StampProperty] in every document: about 40 bytes, and one entry
//     in the index unless the indexing policy excludes it.
//
// A [Patch] of a document that is not in the cache costs a read too, because a condition on the
// contents could not tell an older event from a missing document.
//
// # The SDK
//
// Requests go through azcosmos, which finds the write region and authenticates. Its
// retries are off.
//
// # Several regions
//
// All requests, reads too, go to the region that takes writes. When that cannot be
// reached or only answers 503, the requests fail as an outage, and the sink reads the
// account again, at most once a second, until another region takes writes.
//
// With multi-region writes, requests go to the first region of PreferredRegions in
// [Config.Client]. If that fails requests, and has taken none for a second, they go to the
// next one that can be reached. They
// do not go back before that one fails or the sink is opened again. A document with a [Source] is refused there with
// [ErrMultiRegionWrites]: each region would check the condition against its own copy,
// and the account would later keep one of two conflicting documents, not the newer
// event's.
package cosmos
