// Package azurecheckpoints reads checkpoints that the Azure SDKs' event processors have left in a
// container of Azure Blob Storage, and which processors are still active.
//
//   - The current SDKs (Go, .NET, Java, JavaScript, Python) and Azure Functions
//     have an empty blob for each partition,
//     namespace/hub/group/checkpoint/partition, with metadata sequencenumber and
//     offset, and another, …/ownership/partition, with metadata ownerid. All but
//     Go's write the names in lower case. One of offset and sequence number may
//     be empty; .NET writes a placeholder for an offset.
//
//   - The older ones (EventProcessorHost of .NET, Java, JavaScript and Python,
//     and Functions before version 5 of the extension) have one blob for each
//     partition with both, in JSON: Offset, SequenceNumber, PartitionId, Owner,
//     Token, Epoch; some write the names' first letter small. Its name is
//     namespace/hub/group/partition (Functions), group/partition
//     (EventProcessorHost) or hub/group/partition, and its lease is the owner's.
//
//   - The former Go SDK, and Dapr before 1.10 with it, has JSON with offset and
//     sequenceNumber in a member checkpoint. Its blobs are the partitions' numbers in
//     the container's root, or behind a prefix; Dapr's are dapr-hub-group-partition.
//     The former Python SDK's have partition_id and sequence_number; they are in the
//     root too, or group/partition.
//
//   - The published fixed-partition processor (github.com/plasne/fixed-partitioned-event-hub) has
//     the offset of the last event that is done, a number, as the content of
//     namespace/hub/group/ownership/partition, without a sequence number. The blob's lease
//     is the owner's. A stop does not give it back: it expires within LEASE_FOR_X_SEC.
//
// A blob in the root says neither hub nor group. It counts only if the group has no
// other checkpoint: give each group's prefix.
//
// All kinds name the last event that was processed.
package azurecheckpoints
