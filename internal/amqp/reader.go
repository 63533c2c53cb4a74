package amqp

import (
	"time"
	"unicode/utf8"
)

// Reader reads the sections of a received message, and their values, from where they lie, so that
// a receiver decodes them into its own types without a tree of values in between. After the first
// error every read returns a zero value; callers check [Reader.Err] at the end.
//
// It accepts what a broker may have accepted of a sender and cannot be refused any more: text of
// any bytes, and values nested up to 100 deep.
type Reader struct{ d decoder }

// NewReader returns a reader of an encoded message. Slices that it returns are parts of b.
func NewReader(b []byte) Reader { return Reader{decoder{buf: b, received: true}} }

// Err is the first error.
func (r *Reader) Err() error {
	if r.d.err == nil {
		return nil
	}
	return r.d.err
}

// Fail makes the reader fail, unless it has.
func (r *Reader) Fail(format string, args ...any) { r.d.fail(format, args...) }

// More reports whether there is more to read.
func (r *Reader) More() bool { return r.d.err == nil && r.d.offset < len(r.d.buf) }

// Offset is where the next value begins.
func (r *Reader) Offset() int { return r.d.offset }

// Seek continues with the values between two offsets that [Reader.Offset] returned before.
func (r *Reader) Seek(start, end int) { r.d.buf, r.d.offset = r.d.buf[:end], start }

// Section reads the descriptor of the next section and returns its code, one of the Section
// constants. What follows is the section's value.
func (r *Reader) Section() byte {
	code := r.d.descriptor(sectionNames)
	if r.d.err == nil && (code < SectionHeader || code > SectionFooter) {
		r.d.fail("descriptor %#02x is not a section of a message", code)
	}
	return code
}

// Null reads the next value if it is null.
func (r *Reader) Null() bool {
	if r.d.peek() != codeNull {
		return false
	}
	r.d.offset++
	return true
}

// Text reads the next value if it is a string or a symbol, and returns where its bytes lie. They
// need not be UTF-8.
func (r *Reader) Text() (start, end int, ok bool) {
	switch code := r.d.peek(); code {
	case codeStr8, codeSym8, codeStr32, codeSym32:
		r.d.offset++
		n := len(r.d.bytesOf(code))
		return r.d.offset - n, r.d.offset, r.d.err == nil
	}
	return 0, 0, false
}

// Binary reads the next value if it is a binary.
func (r *Reader) Binary() (b []byte, ok bool) {
	switch code := r.d.peek(); code {
	case codeBin8, codeBin32:
		r.d.offset++
		b = r.d.bytesOf(code)
		return b, r.d.err == nil
	}
	return nil, false
}

// Int reads the next value if it is a signed integer of any width.
func (r *Reader) Int() (v int64, ok bool) {
	switch code := r.d.peek(); code {
	case codeByte, codeSmallInt, codeSmallLong:
		r.d.offset++
		return int64(int8(r.d.u8())), r.d.err == nil
	case codeShort:
		r.d.offset++
		return int64(int16(r.d.u16())), r.d.err == nil
	case codeInt:
		r.d.offset++
		return int64(int32(r.d.u32())), r.d.err == nil
	case codeLong:
		r.d.offset++
		return int64(r.d.u64()), r.d.err == nil
	}
	return 0, false
}

// Timestamp reads the next value if it is a timestamp.
func (r *Reader) Timestamp() (t time.Time, ok bool) {
	if r.d.peek() != codeTimestamp {
		return t, false
	}
	r.d.offset++
	ms := int64(r.d.u64())
	return timeOf(ms), r.d.err == nil
}

// Map enters the next value, which must be a map, and returns the number of its entries. After
// keys and values the caller calls [Reader.Leave] with end.
func (r *Reader) Map() (end, entries int) {
	code := r.d.constructor()
	if code != codeMap8 && code != codeMap32 {
		r.d.fail("format code %#02x in place of a map", code)
		return 0, 0
	}
	end, n := r.d.compound(code)
	if n%2 != 0 {
		r.d.fail("map of an odd number of elements")
		return 0, 0
	}
	return end, n / 2
}

// List enters the next value, which must be a list, and returns the number of its elements. After
// them the caller calls [Reader.Leave] with end.
func (r *Reader) List() (end, elements int) {
	switch code := r.d.constructor(); code {
	case codeList0:
		return r.d.offset, 0
	case codeList8, codeList32:
		return r.d.compound(code)
	default:
		r.d.fail("format code %#02x in place of a list", code)
		return 0, 0
	}
}

// Leave checks that the elements filled the map or list exactly.
func (r *Reader) Leave(end int) { r.d.closeCompound(end) }

// Value reads the next value, of any type.
func (r *Reader) Value() any { return r.d.value() }

// Skip skips the next value, and checks its structure.
func (r *Reader) Skip() { r.d.skip() }

// Jump skips the next value by the size that it declares, without a look at what a map or list
// contains.
func (r *Reader) Jump() {
	switch code := r.d.constructor(); code {
	case codeList8, codeMap8:
		r.d.take(int(r.d.u8()))
	case codeList32, codeMap32:
		r.d.take(r.d.size32())
	default:
		r.d.skipOf(code)
	}
}

// Values returns the elements of the array.
func (a Array) Values() (all []any) {
	d := decoder{buf: []byte(a), received: true}
	code := d.constructor()
	if code != codeArray8 && code != codeArray32 {
		return nil
	}
	end, n := d.compound(code)
	of := d.constructor()
	var descriptor any
	described := of == codeDescribed
	if described {
		descriptor = d.value()
		of = d.constructor()
	}
	for ; n > 0 && d.err == nil; n-- {
		var v any
		if of == codeArray8 || of == codeArray32 {
			start := d.offset
			d.skipOf(of)
			v = Array(append([]byte{of}, d.buf[start:d.offset]...))
		} else {
			v = d.valueOf(of)
		}
		if described {
			v = Described{descriptor, v}
		}
		all = append(all, v)
	}
	d.closeCompound(end)
	return all
}

// Bytes returns the elements of an array of unsigned bytes; ok is false for other arrays.
func (a Array) Bytes() (all []byte, ok bool) {
	ok = a.each(func(d *decoder, code byte) bool {
		if code != codeUbyte {
			return false
		}
		all = append(all, d.u8())
		return true
	})
	return all, ok
}

// String returns the character, U+FFFD if it is none.
func (c Char) String() string {
	if !utf8.ValidRune(rune(c)) {
		return "\uFFFD"
	}
	return string(rune(c))
}
