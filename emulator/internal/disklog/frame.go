package disklog

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	frameHeader = 40
	maxKey      = 1<<16 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is the header of an event's frame.
type frame struct {
	size     int   // of the whole frame
	left     int   // events of the batch that follow
	sequence int64 // of the event
	enqueued int64 // in ms since 1970
	written  int64 // bytes from the beginning of the write to the frame
	key      int   // size of the key
}

func frameSize(m *Message) int64 { return frameHeader + int64(len(m.Key)) + int64(len(m.Payload)) }

// appendFrame appends to buf the frame of m, which f describes but for its
// sizes, for position pos.
func appendFrame(buf []byte, mark uint32, pos int64, f frame, m *Message) []byte {
	start := len(buf)
	buf = binary.LittleEndian.AppendUint32(buf, mark)
	buf = binary.LittleEndian.AppendUint32(buf, 0)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(frameSize(m)))
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

// parseFrame reads the header at the beginning of b. It reports false if that
// cannot be one: then b is too short, damaged, or the end of the log.
func parseFrame(b []byte, mark uint32) (frame, bool) {
	if len(b) < frameHeader || binary.LittleEndian.Uint32(b) != mark {
		return frame{}, false
	}
	f := frame{
		size:     int(binary.LittleEndian.Uint32(b[8:])),
		left:     int(binary.LittleEndian.Uint32(b[12:])),
		sequence: int64(binary.LittleEndian.Uint64(b[16:])),
		enqueued: int64(binary.LittleEndian.Uint64(b[24:])),
		written:  int64(binary.LittleEndian.Uint32(b[32:])),
		key:      int(binary.LittleEndian.Uint16(b[36:])),
	}
	return f, f.size >= frameHeader+f.key && f.size <= maxFrame && f.sequence >= 0
}

// intact reports whether the checksum of the frame b, all of it, is right for
// position pos.
func intact(b []byte, pos int64) bool {
	return binary.LittleEndian.Uint32(b[4:]) == checksum(b, pos)
}

// checksum begins with the position instead of 0, which makes the sums of the
// same bytes at two positions differ.
func checksum(b []byte, pos int64) uint32 {
	return crc32.Update(uint32(pos)^uint32(pos>>32), castagnoli, b[8:])
}
