// Package blobstore keeps leases, checkpoints and dead letters in a container
// of Azure Blob Storage, for [sluice.AtLeastOnce].
//
//	store, err := blobstore.Open(ctx, "https://account.blob.core.windows.net/sluice", &blobstore.Config{Credential: credential})
//	consumer, err := sluice.New(source, store.Leases(), sluice.AtLeastOnce(store, store, records, sink, nil), sluice.AllPartitions, nil)
//
// # Blobs
//
// Each partition of a consumer group has one blob without content,
// namespace/topic/group/partitions/ID, whose metadata tells in plain text what
// is known of it. Dead letters are told by the partition's register,
// …/letters/ID, in JSON; each has a blob with its body, …/bodies/ID/…, behind
// one line of JSON with the properties if there are any. Characters that blob
// names don't take are written as ~ and two hexadecimal digits.
//
// # One writer at a time
//
// A partition's lease is a real lease on its blob, so that the server's clock
// alone judges its end, and the blob refuses writes from elsewhere. Azure
// grants 15 to 60 seconds; [CheckLease] says so before the start.
//
// Every write names the version that it was decided on (If-Match) and, under a
// lease, that lease's id. The metadata also holds owner and epoch of the lease
// and of the checkpoint, and both are compared before a write. So an owner that
// was paused past its lease can neither renew it nor move the checkpoint, not
// even with a request that was under way before: it gets 412 or 409. Lease ids
// follow from owner and epoch, and are proposed by us; so a request that is
// sent again because its answer was lost does no harm.
//
// A checkpoint claimed under a lease of another lease store is written without
// a lease id, and fenced by epoch, owner and version.
//
// # Cost
//
// A renewal takes three requests (two of them writes), a checkpoint two (one
// write), [Store.Due] one where nothing is due. Metadata holds 8 KB: of what is
// done behind the checkpoint the first 250 ranges or more are kept, up to 2,500
// if they are small.
//
// A register is rewritten when its dead letters change, and is about 500 bytes
// for each: good for tens of thousands in a partition. A process that dies
// while it stores dead letters may leave bodies that no register tells of;
// those take room and mean nothing. In an account with blob versioning or soft
// delete every checkpoint leaves a version behind: turn both off for this one.
package blobstore
