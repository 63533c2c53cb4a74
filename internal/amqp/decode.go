package amqp

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// maxDepth bounds the nesting of lists, maps, arrays and described values.
const maxDepth = 32

// maxDepthReceived is the same for a [Reader].
const maxDepthReceived = 100

// maxPrealloc bounds the elements allocated before they are decoded: each of many nested lists can
// claim as many elements as there are bytes.
const maxPrealloc = 32

// decoder reads values from a byte slice. After the first error, every read returns a zero value,
// so that callers check err once, at the end. It never reads past buf, and allocates at most a
// small multiple of its length.
type decoder struct {
	buf    []byte
	offset int
	depth  int
	err    *Error
	// tooDeep is set if err is that values nest too deep.
	tooDeep bool
	// received is set for a [Reader].
	received bool
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = Errorf(CondDecode, format, args...)
	}
}

// rest is what hasn't been read.
func (d *decoder) rest() []byte { return d.buf[d.offset:] }

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.buf)-d.offset {
		d.fail("value of %d bytes ends after %d", n, len(d.buf)-d.offset)
		return nil
	}
	b := d.buf[d.offset : d.offset+n : d.offset+n]
	d.offset += n
	return b
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// constructor reads the format code of a value. At the end of the input it fails and yields null.
func (d *decoder) constructor() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return codeNull
}

// peek returns the format code of the next value, without reading it.
func (d *decoder) peek() byte {
	if d.err != nil || d.offset >= len(d.buf) {
		d.fail("a value is missing at the end")
		return 0xff
	}
	return d.buf[d.offset]
}

// size32 reads a 32-bit size that must lie within the input.
func (d *decoder) size32() int {
	n := d.u32()
	if n > math.MaxInt32 {
		d.fail("value of %d bytes ends after %d", n, len(d.buf)-d.offset)
		return 0
	}
	return int(n)
}

// compound reads size and count of a list, map or array whose constructor has been read, and
// returns the offset at which it ends. The count is at most the number of bytes left for the
// elements, for each takes at least one; an array of elements without any bytes has the same
// limit.
func (d *decoder) compound(code byte) (end, count int) {
	switch code {
	case codeList8, codeMap8, codeArray8:
		n := int(d.u8())
		end = d.offset + n
		count = int(d.u8())
	default:
		n := d.size32()
		end = d.offset + n
		count = d.size32()
	}
	switch {
	case d.err != nil:
		return d.offset, 0
	case end < d.offset || end > len(d.buf):
		d.fail("compound value ends beyond its frame")
	case count > end-d.offset:
		d.fail("compound value of %d elements in %d bytes", count, end-d.offset)
	}
	if d.err != nil {
		return d.offset, 0
	}
	return end, count
}

// closeCompound checks that the elements filled the compound exactly.
func (d *decoder) closeCompound(end int) {
	if d.err == nil && d.offset != end {
		d.fail("compound value ends %d bytes off its declared size", d.offset-end)
	}
}

func (d *decoder) descend() bool {
	limit := maxDepth
	if d.received {
		limit = maxDepthReceived
	}
	if d.depth++; d.depth > limit {
		d.tooDeep = d.err == nil
		d.fail("values nested deeper than %d", limit)
	}
	return d.err == nil
}

func (d *decoder) ascend() { d.depth-- }

// value decodes the next value.
func (d *decoder) value() any {
	code := d.constructor()
	if d.err != nil {
		return nil
	}
	return d.valueOf(code)
}

func (d *decoder) valueOf(code byte) any {
	switch code {
	case codeNull:
		return nil
	case codeTrue:
		return true
	case codeFalse:
		return false
	case codeBool:
		return d.u8() != 0
	case codeUbyte:
		return d.u8()
	case codeUshort:
		return d.u16()
	case codeUint0:
		return uint32(0)
	case codeSmallUint:
		return uint32(d.u8())
	case codeUint:
		return d.u32()
	case codeUlong0:
		return uint64(0)
	case codeSmallUlong:
		return uint64(d.u8())
	case codeUlong:
		return d.u64()
	case codeByte:
		return int8(d.u8())
	case codeShort:
		return int16(d.u16())
	case codeSmallInt:
		return int32(int8(d.u8()))
	case codeInt:
		return int32(d.u32())
	case codeSmallLong:
		return int64(int8(d.u8()))
	case codeLong:
		return int64(d.u64())
	case codeFloat:
		return math.Float32frombits(d.u32())
	case codeDouble:
		return math.Float64frombits(d.u64())
	case codeChar:
		return Char(d.u32())
	case codeDecimal32:
		return Decimal(d.take(4))
	case codeDecimal64:
		return Decimal(d.take(8))
	case codeDecimal128:
		return Decimal(d.take(16))
	case codeTimestamp:
		return timeOf(int64(d.u64()))
	case codeUUID:
		var u UUID
		copy(u[:], d.take(16))
		return u
	case codeBin8, codeBin32:
		return append([]byte{}, d.bytesOf(code)...)
	case codeStr8, codeStr32:
		return d.textOf(code)
	case codeSym8, codeSym32:
		return Symbol(d.bytesOf(code))
	}
	return d.nested(code)
}

// nested decodes the types that hold other values.
func (d *decoder) nested(code byte) any {
	if !d.descend() {
		return nil
	}
	defer d.ascend()
	switch code {
	case codeDescribed:
		return Described{Descriptor: d.value(), Value: d.value()}
	case codeList0:
		return List{}
	case codeList8, codeList32:
		end, n := d.compound(code)
		l := make(List, 0, min(n, maxPrealloc))
		for i := 0; i < n && d.err == nil; i++ {
			l = append(l, d.value())
		}
		d.closeCompound(end)
		return l
	case codeMap8, codeMap32:
		end, n := d.compound(code)
		if n%2 != 0 {
			d.fail("map of an odd number of elements")
		}
		m := make(Map, 0, min(n/2, maxPrealloc))
		for i := 0; i < n && d.err == nil; i += 2 {
			m = append(m, Pair{Key: d.value(), Value: d.value()})
		}
		d.closeCompound(end)
		return m
	case codeArray8, codeArray32:
		start := d.offset - 1
		d.skipOf(code)
		return Array(d.buf[start:d.offset])
	}
	d.fail("unknown format code %#02x", code)
	return nil
}

// bytesOf reads a variable-width value; the result is a part of the input.
func (d *decoder) bytesOf(code byte) []byte {
	if code < codeBin32 {
		return d.take(int(d.u8()))
	}
	return d.take(d.size32())
}

func (d *decoder) textOf(code byte) string {
	b := d.bytesOf(code)
	if !d.received && !utf8.Valid(b) {
		d.fail("string is not UTF-8")
	}
	return string(b)
}

// skip skips the next value, checking its structure.
func (d *decoder) skip() {
	code := d.constructor()
	if d.err == nil {
		d.skipOf(code)
	}
}

func (d *decoder) skipOf(code byte) {
	switch code >> 4 {
	case 0x4:
		if code <= codeList0 {
			return
		}
	case 0x5:
		d.take(1)
		return
	case 0x6:
		d.take(2)
		return
	case 0x7:
		d.take(4)
		return
	case 0x8:
		d.take(8)
		return
	case 0x9:
		d.take(16)
		return
	case 0xa:
		d.take(int(d.u8()))
		return
	case 0xb:
		d.take(d.size32())
		return
	}
	if !d.descend() {
		return
	}
	defer d.ascend()
	switch code {
	case codeDescribed:
		d.skip()
		d.skip()
	case codeList8, codeList32, codeMap8, codeMap32:
		end, n := d.compound(code)
		if code&0x0f == 1 && n%2 != 0 {
			d.fail("map of an odd number of elements")
		}
		for i := 0; i < n && d.err == nil; i++ {
			d.skip()
		}
		d.closeCompound(end)
	case codeArray8, codeArray32:
		end, n := d.compound(code)
		element := d.constructor()
		if element == codeDescribed {
			d.skip()
			element = d.constructor()
		}
		for i := 0; i < n && d.err == nil; i++ {
			d.skipOf(element)
		}
		d.closeCompound(end)
	default:
		d.fail("unknown format code %#02x", code)
	}
}

// descriptor reads the start of a described value, and returns the code of its descriptor, or of
// its symbolic name where known names it.
func (d *decoder) descriptor(known map[string]byte) byte {
	if d.constructor() != codeDescribed {
		d.fail("expected a described value")
		return 0
	}
	switch code := d.constructor(); code {
	case codeSmallUlong:
		return d.u8()
	case codeUlong:
		if v := d.u64(); v <= math.MaxUint8 {
			return byte(v)
		}
	case codeSym8, codeSym32:
		if v, ok := known[string(d.bytesOf(code))]; ok {
			return v
		}
	}
	d.fail("unknown descriptor")
	return 0
}
