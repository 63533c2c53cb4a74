// Package blobstore keeps leases, checkpoints and dead letters in a container of Azure Blob
// Storage, for sluice.AtLeastOnce.
//
//	store, err := blobstore.Open(ctx, "https://account.blob.core.windows.net/sluice", &blobstore.Config{Credential: credential})
//	consumer, err := sluice.New(source, store.Leases(), sluice.AtLeastOnce(store, records, sink, nil), nil)
//
// # Blobs
//
// Each partition of a consumer group has one blob without content,
// namespace/topic/group/partitions/ID, whose metadata holds its state in plain text. The
// partition's index, …/letters/ID, lists its dead letters in JSON. Each dead letter has a blob with
// its body, …/bodies/ID/…, after one line of JSON with the properties if there are any. Characters
// that blob names cannot contain are written as ~ and two hexadecimal digits.
//
// # One writer at a time
//
// A partition's lease is a real lease on its blob, so that only the server's clock decides when it
// expires, and the blob refuses writes by others. Azure grants 15 to 60 seconds; [CheckLease]
// checks that before the start.
//
// Every write names the version that was read (If-Match) and, under a lease, the lease's ID. The
// metadata also holds owner and epoch of the lease and of the checkpoint; both are compared before
// a write. Therefore an owner that was paused past its lease can neither renew it nor move the
// checkpoint, not even with a request that it sent before: it gets 412 or 409. Lease IDs are
// computed from owner and epoch and proposed by the client, so that it is harmless to repeat a
// request whose answer was lost.
//
// A checkpoint claimed under a lease of another lease store is written without a lease ID, and is
// fenced by epoch, owner and version.
//
// # Cost
//
// A renewal takes three requests (two of them writes), a checkpoint two (one write), [Store.Due]
// one if nothing is due. Metadata holds 8 KB: the first 250 or more of the ranges done after the
// checkpoint are kept, up to 2,500 if they are small.
//
// An index is rewritten when its dead letters change, and takes about 500 bytes for each: enough
// for tens of thousands in a partition. A process that dies while it stores dead letters may leave
// bodies that no index names; they take up storage and have no other effect. In an account with
// blob versioning or soft delete every checkpoint leaves a version behind: turn both off for this
// account.
//
// # Silent servers
//
// Every call returns when its context ends, at most a second later if it has to clean up. One try
// of a request lasts four seconds at most, so that after a connection has fallen silent the next
// try still comes within the engine's deadline. A client given to [New] has the tries of its maker.
package blobstore
