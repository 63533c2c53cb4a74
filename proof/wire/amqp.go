package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
)

// amqp is AMQP 1.0: frames of section 2.3.1, after headers of eight bytes.
type amqp struct{}

func (amqp) next(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	if string(head) == "AMQP" {
		frame := make([]byte, 8)
		_, err := io.ReadFull(r, frame)
		return frame, err
	}
	return sized(r, 0)
}

// asks implements [protocol]. The SDK waits for answers of the management node under a mutex, where
// virtual time stands still. So these connections are honest, and with them those of its receivers.
func (amqp) asks(frame []byte) (lie, spare bool) {
	const described = 8
	if len(frame) < described+3 || !bytes.Equal(frame[described:described+3], []byte{0x00, 0x53, 0x12}) { // attach
		return false, false
	}
	return bytes.Contains(frame, []byte("/ConsumerGroups/")), bytes.Contains(frame, []byte("$management"))
}

// transfer takes a transfer apart (section 2.7.5): its frame header, the fields of its list, and
// the content. It returns false if the frame is another one.
func transfer(frame []byte) (header []byte, fields [][]byte, content []byte, ok bool) {
	const described = 8 // after the frame's header
	if len(frame) < described+6 || !bytes.Equal(frame[described:described+3], []byte{0x00, 0x53, 0x14}) {
		return nil, nil, nil, false
	}
	list := frame[described+3:]
	var count, at, end int
	switch list[0] {
	case 0xc0:
		end, count, at = 2+int(list[1]), int(list[2]), 3
	case 0xd0:
		end, count, at = 5+int(binary.BigEndian.Uint32(list[1:])), int(binary.BigEndian.Uint32(list[5:])), 9
	default:
		return nil, nil, nil, false
	}
	for range count {
		n := sizeOf(list[at:])
		fields = append(fields, list[at:at+n])
		at += n
	}
	return frame[:described], fields, list[end:], at == end
}

// sizeOf is how many bytes a value takes, by its constructor (section 1.2).
func sizeOf(value []byte) int {
	switch code := value[0]; code >> 4 {
	case 4:
		return 1
	case 5:
		return 2
	case 6:
		return 3
	case 7:
		return 5
	case 8:
		return 9
	case 9:
		return 17
	case 0xa, 0xc, 0xe:
		return 2 + int(value[1])
	case 0xb, 0xd, 0xf:
		return 5 + int(binary.BigEndian.Uint32(value[1:]))
	}
	return len(value) + 1 // it is described: not in a transfer
}

// moreField is the number of the field which says that the message goes on in another frame.
const moreField = 5

// build makes a transfer.
func build(header []byte, fields [][]byte, more bool, content []byte) []byte {
	fields = slices.Clone(fields)
	for len(fields) <= moreField {
		fields = append(fields, []byte{0x40})
	}
	fields[moreField] = []byte{0x42}
	if more {
		fields[moreField] = []byte{0x41}
	}
	list := slices.Concat(fields...)
	frame := slices.Clone(header)
	frame = append(frame, 0x00, 0x53, 0x14, 0xd0)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(list)+4))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(fields)))
	frame = slices.Concat(frame, list, content)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)))
	return frame
}

// empty implements [protocol]: the message begins, with nothing.
func (amqp) empty(frame []byte) []byte {
	header, fields, _, ok := transfer(frame)
	if !ok {
		return nil
	}
	return build(header, fields, true, nil)
}

// forge implements [protocol].
func (amqp) forge([]byte, *rand.Rand) []byte { return nil }

// split implements [protocol].
func (amqp) split(frame []byte, at float64) [][]byte {
	header, fields, content, ok := transfer(frame)
	if !ok || len(content) < 2 {
		return nil
	}
	goesOn := len(fields) > moreField && fields[moreField][0] == 0x41
	n := 1 + int(at*float64(len(content)-1))
	return [][]byte{build(header, fields, true, content[:n]), build(header, fields, goesOn, content[n:])}
}
