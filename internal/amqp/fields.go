package amqp

// fields reads the fields of a composite value in order. A field that is null, or left out at the
// end, reads as its default.
type fields struct {
	*decoder
	left int
	end  int
}

// openFields enters the list of a composite value whose descriptor has been read.
func (d *decoder) openFields() fields {
	code := d.constructor()
	switch code {
	case codeList0:
		return fields{decoder: d, end: d.offset}
	case codeList8, codeList32:
		end, n := d.compound(code)
		return fields{decoder: d, left: n, end: end}
	}
	d.fail("a composite value must be a list, not format code %#02x", code)
	return fields{decoder: d, end: d.offset}
}

// close skips the remaining fields, and checks that the list has its declared size.
func (f *fields) close() {
	for ; f.left > 0 && f.err == nil; f.left-- {
		f.skip()
	}
	f.closeCompound(f.end)
}

// next reads the constructor of the next field; ok is false if the field isn't set.
func (f *fields) next() (code byte, ok bool) {
	if f.left == 0 || f.err != nil {
		return codeNull, false
	}
	f.left--
	code = f.constructor()
	return code, code != codeNull && f.err == nil
}

func (f *fields) mismatch(code byte, want string) {
	f.fail("format code %#02x in place of %s", code, want)
}

func (f *fields) any() any {
	if code, ok := f.next(); ok {
		return f.valueOf(code)
	}
	return nil
}

func (f *fields) text() string {
	code, ok := f.next()
	if !ok {
		return ""
	}
	switch code {
	case codeStr8, codeStr32:
		return f.textOf(code)
	}
	f.mismatch(code, "a string")
	return ""
}

func (f *fields) symbol() Symbol {
	code, ok := f.next()
	if !ok {
		return ""
	}
	switch code {
	case codeSym8, codeSym32:
		return Symbol(f.bytesOf(code))
	}
	f.mismatch(code, "a symbol")
	return ""
}

// binary yields a part of the input, not a copy, and nil if the field isn't set.
func (f *fields) binary() []byte {
	code, ok := f.next()
	if !ok {
		return nil
	}
	switch code {
	case codeBin8, codeBin32:
		return f.bytesOf(code)
	}
	f.mismatch(code, "a binary")
	return nil
}

func (f *fields) bool() bool {
	code, ok := f.next()
	if !ok {
		return false
	}
	switch code {
	case codeTrue:
		return true
	case codeFalse:
		return false
	case codeBool:
		return f.u8() != 0
	}
	f.mismatch(code, "a boolean")
	return false
}

// uint reads an unsigned integer of any width up to 64 bits: some clients send a wider or narrower
// type than the standard requires.
func (f *fields) uint(missing uint64) uint64 {
	code, ok := f.next()
	if !ok {
		return missing
	}
	switch code {
	case codeUint0, codeUlong0:
		return 0
	case codeUbyte, codeSmallUint, codeSmallUlong:
		return uint64(f.u8())
	case codeUshort:
		return uint64(f.u16())
	case codeUint:
		return uint64(f.u32())
	case codeUlong:
		return f.u64()
	}
	f.mismatch(code, "an unsigned integer")
	return missing
}

func (f *fields) uint32(missing uint32) uint32 {
	v := f.uint(uint64(missing))
	if v > 0xffffffff {
		f.fail("%d in place of an unsigned 32-bit integer", v)
		return missing
	}
	return uint32(v)
}

// optUint32 reads an unsigned 32-bit integer; ok is false if the field isn't set.
func (f *fields) optUint32() (v uint32, ok bool) {
	const unset = 1 << 40
	n := f.uint(unset)
	if n == unset {
		return 0, false
	}
	if n > 0xffffffff {
		f.fail("%d in place of an unsigned 32-bit integer", n)
		return 0, false
	}
	return uint32(n), true
}

func (f *fields) mapping() Map {
	code, ok := f.next()
	if !ok {
		return nil
	}
	if code != codeMap8 && code != codeMap32 {
		f.mismatch(code, "a map")
		return nil
	}
	m, _ := f.valueOf(code).(Map)
	return m
}

// symbols reads a field that may hold one symbol or an array of them.
func (f *fields) symbols() (all []Symbol) {
	code, ok := f.next()
	switch {
	case !ok:
		return nil
	case code == codeSym8 || code == codeSym32:
		return []Symbol{Symbol(f.bytesOf(code))}
	case code != codeArray8 && code != codeArray32:
		f.mismatch(code, "symbols")
		return nil
	}
	end, n := f.compound(code)
	element := f.constructor()
	if n > 0 && element != codeSym8 && element != codeSym32 {
		f.mismatch(element, "a symbol")
	}
	for ; n > 0 && f.err == nil; n-- {
		all = append(all, Symbol(f.bytesOf(element)))
	}
	f.closeCompound(end)
	return all
}

// skipField skips one field.
func (f *fields) skipField() {
	if code, ok := f.next(); ok {
		f.skipOf(code)
	}
}

// described enters a composite value that is a field, and returns the code of its descriptor; ok
// is false if the field isn't set.
func (f *fields) described(names map[string]byte) (desc byte, inner fields, ok bool) {
	code, ok := f.next()
	if !ok {
		return 0, fields{}, false
	}
	if code != codeDescribed {
		f.mismatch(code, "a described value")
		return 0, fields{}, false
	}
	f.offset--
	desc = f.descriptor(names)
	inner = f.openFields()
	return desc, inner, f.err == nil
}
