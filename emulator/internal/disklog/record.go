package disklog

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	recordHeader = 40
	maxKey       = 1<<16 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is the header of a record, which holds one event.
type record struct {
	size     int   // of the whole record
	left     int   // events of the batch that follow
	sequence int64 // of the event
	enqueued int64 // in ms since 1970
	written  int64 // bytes from the beginning of the write to the record
	key      int   // size of the key
}

func recordSize(m *Message) int64 { return recordHeader + int64(len(m.Key)) + int64(len(m.Payload)) }

// appendRecord appends to buf the record of m for position pos. The fields of f are
// used except for its sizes.
func appendRecord(buf []byte, mark uint32, pos int64, f record, m *Message) []byte {
	start := len(buf)
	buf = binary.LittleEndian.AppendUint32(buf, mark)
	buf = binary.LittleEndian.AppendUint32(buf, 0)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(recordSize(m)))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(f.left))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(f.sequence))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(f.enqueued))
	buf = binary.LittleEndian.AppendUint32(buf, uint32(f.written))
	buf = binary.LittleEndian.AppendUint16(buf, uint16(len(m.Key)))
	buf = append(buf, 0, 0)
	buf = append(buf, m.Key...)
	buf = append(buf, m.Payload...)
	binary.LittleEndian.PutUint32(buf[start+4:], checksum(buf[start:], pos))
	return buf
}

// parseRecord parses the header at the beginning of b. It reports false if b is too
// short, damaged, or beyond the end of the log.
func parseRecord(b []byte, mark uint32) (record, bool) {
	if len(b) < recordHeader || binary.LittleEndian.Uint32(b) != mark {
		return record{}, false
	}
	f := record{
		size:     int(binary.LittleEndian.Uint32(b[8:])),
		left:     int(binary.LittleEndian.Uint32(b[12:])),
		sequence: int64(binary.LittleEndian.Uint64(b[16:])),
		enqueued: int64(binary.LittleEndian.Uint64(b[24:])),
		written:  int64(binary.LittleEndian.Uint32(b[32:])),
		key:      int(binary.LittleEndian.Uint16(b[36:])),
	}
	return f, f.size >= recordHeader+f.key && f.size <= maxRecord && f.sequence >= 0
}

// checksumValid reports whether the checksum of the record b, all of it, is right for
// position pos.
func checksumValid(b []byte, pos int64) bool {
	return binary.LittleEndian.Uint32(b[4:]) == checksum(b, pos)
}

// checksum starts from the position instead of 0, so that the same bytes have
// different checksums at different positions.
func checksum(b []byte, pos int64) uint32 {
	return crc32.Update(uint32(pos)^uint32(pos>>32), castagnoli, b[8:])
}
