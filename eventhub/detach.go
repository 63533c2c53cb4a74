package eventhub

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/Azure/go-amqp"
)

// detaches finds the errors of detach frames in the bytes of a connection, which come in
// pieces of any size.
type detaches struct {
	frame []byte // the beginning of the next frame; all of it so far, if it is a detach
	skip  int    // bytes that follow of a frame of another kind
}

const (
	frameHeader    = 8
	performativeAt = frameHeader + 3 // the bytes that show what a frame is
	// maxDetach bounds the size of a detach that is looked at. Brokers' texts take a few
	// hundred bytes.
	maxDetach = 8 << 10
)

// scan looks at the next bytes, and calls found with the error of each detach that has one.
func (d *detaches) scan(b []byte, found func(*amqp.Error)) {
	for len(b) > 0 {
		if d.skip > 0 {
			n := min(d.skip, len(b))
			d.skip -= n
			b = b[n:]
			continue
		}
		n := min(d.missing(), len(b))
		d.frame = append(d.frame, b[:n]...)
		b = b[n:]
		if d.missing() > 0 {
			continue
		}
		if performative(d.frame) == detachFrame {
			if err := remoteError(d.frame); err != nil {
				found(err)
			}
		}
		d.skip = d.size() - len(d.frame)
		d.frame = d.frame[:0]
	}
}

// missing returns how many more bytes of the frame are needed: to see what it is, or all of
// a detach.
func (d *detaches) missing() int {
	switch have, size := len(d.frame), d.size(); {
	case have < min(size, performativeAt):
		return min(size, performativeAt) - have
	case performative(d.frame) == detachFrame && size <= maxDetach:
		return size - have
	}
	return 0
}

// size returns the size of the frame: of its header, while that is not complete.
func (d *detaches) size() int {
	switch {
	case len(d.frame) < frameHeader, bytes.HasPrefix(d.frame, []byte("AMQP")):
		return frameHeader // also that of a protocol header
	}
	size := binary.BigEndian.Uint32(d.frame)
	if size < frameHeader {
		return math.MaxInt // no AMQP: the SDK ends the connection
	}
	return int(size)
}

// remoteError returns the error in a detach frame (AMQP 1.0, sections 2.7.7 and 2.8.14), nil
// if it has none.
func remoteError(frame []byte) *amqp.Error {
	_, list, found := bytes.Cut(frame, []byte{0x00, 0x53, 0x1d})
	if !found {
		return nil
	}
	switch {
	case len(list) > 3 && list[0] == 0xc0: // a list of up to 255 bytes
		list = list[3:]
	case len(list) > 9 && list[0] == 0xd0:
		list = list[9:]
	default:
		return nil
	}
	condition, list := text(list)
	description, _ := text(list)
	return &amqp.Error{Condition: amqp.ErrCond(condition), Description: description}
}

// text decodes a string or symbol at the beginning of b, and returns what follows. Of another
// value it returns nothing.
func text(b []byte) (string, []byte) {
	var begin, n int
	switch {
	case len(b) >= 2 && (b[0] == 0xa1 || b[0] == 0xa3): // of up to 255 bytes
		begin, n = 2, int(b[1])
	case len(b) >= 5 && (b[0] == 0xb1 || b[0] == 0xb3):
		begin, n = 5, int(binary.BigEndian.Uint32(b[1:]))
	default:
		return "", nil
	}
	if n > len(b)-begin {
		return "", nil
	}
	return string(b[begin : begin+n]), b[begin+n:]
}
