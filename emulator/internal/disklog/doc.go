// Package disklog is a durable, append-only log of events in segment files.
//
// What Append acknowledges survives a killed process and a power failure, and nothing else
// appears: a batch is in the log as a whole or not at all, and readers see it only once it is
// durable. Concurrent appends share one fsync (group commit). A log keeps no event in the heap,
// only one small index entry per 16 KiB of the segments that are being read or written.
//
// # On disk
//
// The log is one sequence of bytes, divided into segments; an event's offset is its position in
// it. A segment file is a header and records, one per event:
//
//	segment  magic 8, CRC 4, mark 4, first sequence 8, first position 8,
//	         enqueued time before it 8, position of the event before it 8, zeros 16
//	record   mark 4, CRC 4, record size 4, events left in the batch 4, sequence 8,
//	         enqueued ms 8, bytes since the write began 4, key size 2, zeros 2, key, payload
//
// Numbers are little-endian, checksums CRC-32C. A record's checksum covers its position, so that
// no copy of a record, in a payload or left over on the disk, is valid elsewhere; the mark is a
// random number per segment. After the records of the last segment there may be zeros, written
// ahead: an fsync is faster if the write merely overwrites them.
//
// The file "state" holds the first sequence number that Trim has left, and a sequence number up to
// which the log was durable when the file was written.
//
// # Recovery
//
// A write begins only after the one before it is durable. So only the records of the last write
// are in doubt: torn, or complete but only in the page cache. Open scans the last segment, drops a
// torn batch at the end, and writes and syncs the last write again. A damaged record that is
// followed by records of a later write had been acknowledged: it is not dropped but reported as a
// [*CorruptError]. Damage to the last write itself cannot be distinguished from a torn write,
// unless the log was closed after it: then "state" has a sequence number above it.
//
// # Failure
//
// After a failed write or fsync, every append of that write gets the error, and the log truncates
// the file to what is known to be durable. A failed fsync is never repeated: the kernel may have
// marked the pages clean that it could not write, so that the next fsync succeeds without them. If
// truncating fails too, the log refuses appends until it is opened again; reads still work.
//
// # Goroutines and locks
//
// The package starts no goroutines: the appender that holds Log.writeLock writes for all appenders
// that wait. Lock order: Log.writeLock, Log.mu, segment.mu. Log.mu is never held over I/O.
//
// # Reading order
//
// log.go, append.go, pending.go (an append in two steps), write.go, record.go, segment.go,
// read.go, cursor.go, trim.go, state.go, recover.go. storage.go is the interface that disk.go and
// memory.go implement.
package disklog
