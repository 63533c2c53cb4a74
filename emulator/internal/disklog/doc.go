// Package disklog is a durable, append-only log of events in segment files.
//
// What Append acknowledges survives a killed process and a power cut, and
// nothing else appears: a batch is in the log as a whole or not at all, and
// readers see it only once it is durable. Concurrent appends share one fsync.
// A log keeps no event in the heap, only one small index entry per 16 KiB of
// the segments that are being read or written.
//
// # On disk
//
// The log is one sequence of bytes, cut into segments; an event's offset is its
// position in it. A segment file is a header and frames, one per event:
//
//	segment  magic 8, CRC 4, mark 4, first sequence 8, first position 8,
//	         enqueued time before it 8, position of the event before it 8, zeros 16
//	frame    mark 4, CRC 4, frame size 4, events left in the batch 4, sequence 8,
//	         enqueued ms 8, bytes since the write began 4, key size 2, zeros 2, key, payload
//
// Numbers are little-endian, checksums CRC-32C. A frame's checksum covers its
// position, so that no copy of a frame, in a payload or left over on the disk,
// can pass for one; the mark is a random number per segment. Behind the frames
// of the last segment there may be zeros, written ahead: a sync of what merely
// overwrites them is faster.
//
// The file "state" holds the first sequence number that Trim has left, and a
// sequence number up to which the log was durable when it was written.
//
// # Recovery
//
// A write begins only when the one before it is durable. So of all frames only
// those of the last write are doubtful: torn, or whole but only in the page
// cache. Open scans the last segment, drops a torn batch at the end, and writes
// and syncs the last write again. A damaged frame with frames of a later write
// behind it was acknowledged once: that is not dropped but reported. Damage to
// the last write itself cannot be told from a torn write, unless the log was
// closed after it: then "state" knows better.
//
// # Failure
//
// After a failed write or sync, every append of that write gets the error, and
// the log cuts the file back to what is known to be durable. A sync is never
// repeated in the hope of a better answer: the kernel may have marked the pages
// clean that it could not write. If cutting back fails too, the log refuses
// appends until it is opened anew; reads go on.
//
// # Reading order
//
// log.go, append.go, begin.go, write.go, frame.go, segment.go, read.go, trim.go,
// recover.go; storage.go is the seam to disk.go and memory.go. Lock order:
// Log.turn, Log.mu, segment.mu.
package disklog
