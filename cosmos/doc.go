// Package cosmos writes documents to Azure Cosmos DB for NoSQL: a
// [sluice.Sink] with the bulk mode that the official Go SDK lacks.
//
//	sink, err := cosmos.New(endpoint, key, "db", "docs", nil)
//	…
//	delivery := sluice.AtLeastOnce(checkpoints, letters, func(_ context.Context, e *sluice.Event) ([]cosmos.Document, error) {
//		return []cosmos.Document{{ID: …, PartitionKey: []any{…}, Body: e.Body}}, nil
//	}, sink)
//
// # Bulk
//
// Documents queue by physical partition, and go out as batches of up to 100
// operations or 2 MB, as the .NET, Java and JavaScript SDKs do it: the account
// carries them out one by one, and each has a status and a charge of its own.
// A batch goes when it is full, when its oldest document has waited for
// [Config.FlushAfter], or as soon as nothing is on its way to the partition. A
// split is followed: documents for a range that is gone go to its successors,
// and that is no failed attempt.
//
// How many requests are on their way to a physical partition follows from what
// it answers: one more for each round that goes well, half after a 429. With
// [Config.RU] requests are paced so that there is hardly ever one.
//
// # Outcomes
//
// The sink never tries again by itself; it tells the engine whose turn it is.
//
//   - [sluice.RetryAfter]: 429 with the account's retry-after, 408, 424, 449,
//     503, a time that is up, a connection that broke, and 410 while a split or
//     move goes on.
//   - [sluice.Reject]: what belongs to one document. A 400 of its own, 409 on
//     [Create], 404 on [Replace], 413 of a document that is alone, a key that
//     is not the body's, a partition key value that is full (403, sub-status
//     1014), and what cannot be a document at all.
//   - [sluice.Outage]: what belongs to the account, the container or the way
//     there. 401, 403, 404 of the container, names, certificates, other 5xx.
//
// A batch that is answered with 413, or with 400 as a whole, is halved until
// the document is found that is to blame; and only if the account refuses that
// document in a request of its own is it rejected.
//
// # At least once, and conditional writes
//
// Without a [Source] a document is written at least once, and the last write
// wins: a repeat after a crash, or a write that arrives late from an owner that
// has lost its partition, can put an older event's document over a newer one's,
// until that is repeated too.
//
// With a [Source] that cannot happen: the document carries the place of its
// event, and is written only over documents of older events of the same
// partition and log. What is older already is done without a write. Cosmos DB
// has no condition on contents for a replacement, but one on versions (If-Match
// with an ETag), so the sink creates, and where there is a document already it
// reads it and replaces just the version that it has read. It remembers the
// versions that it wrote or read ([Config.CachedVersions]). What that costs beside an
// unconditional upsert:
//
//   - a document that is new: nothing;
//   - one that the sink remembers: nothing, and a repeat costs nothing at all;
//   - any other that is there: a refused create and a read, about 2.3 RU, and
//     two more round trips;
//   - and the property [StampProperty] in every document, about 40 bytes and one entry
//     in the index, unless the indexing policy excludes it.
//
// A condition on the contents in a patch would save the read. But a patch sets
// ten properties at most, takes none away, and costs more than a replacement.
//
// # The SDK
//
// Requests go through azcosmos, which finds the region to write to and
// authenticates, with its retries off. Multi-region writes work, but a region
// that can't be reached is an outage here: the SDK's failover to the next
// region belongs to the retries.
package cosmos
