package amqp

import "math"

// Section is one section of an encoded message.
type Section struct {
	Code byte   // one of the Section constants
	Raw  []byte // the section as encoded, descriptor included
	// Value is the encoded value, from its constructor on.
	Value []byte
}

// NextSection returns the first section of an encoded message and the rest. The structure of the
// section is checked, but not the order of sections. Everything returned is a part of b.
func NextSection(b []byte) (s Section, rest []byte, err error) {
	d := decoder{buf: b}
	s.Code = d.descriptor(sectionNames)
	start := d.offset
	code := d.constructor()
	switch {
	case d.err != nil:
		return s, nil, d.err
	case s.Code < SectionHeader || s.Code > SectionFooter:
		return s, nil, Errorf(CondDecode, "descriptor %#02x is not a section of a message", s.Code)
	case !fitsSection(s.Code, code):
		return s, nil, Errorf(CondDecode, "format code %#02x in section %#02x of a message", code, s.Code)
	}
	d.skipOf(code)
	if d.tooDeep {
		// No decoding error: it is well-formed, and Azure's clients would connect again and repeat
		// it until their time is up.
		d.err.Condition = CondNotAllowed
	}
	if d.err != nil {
		return s, nil, d.err
	}
	s.Raw, s.Value = b[:d.offset:d.offset], b[start:d.offset:d.offset]
	return s, b[d.offset:], nil
}

// fitsSection reports whether a section may have a value with this constructor.
func fitsSection(section, code byte) bool {
	switch section {
	case SectionHeader, SectionProperties, SectionSequence:
		return code == codeList0 || code == codeList8 || code == codeList32
	case SectionDeliveryAnnotations, SectionMessageAnnotations, SectionApplicationProperties, SectionFooter:
		return code == codeMap8 || code == codeMap32
	case SectionData:
		return code == codeBin8 || code == codeBin32 || code == codeNull // Azure's JavaScript library sends null
	}
	return true
}

// Data returns the content of a data section, nil if that is null.
func (s Section) Data() []byte {
	d := decoder{buf: s.Value}
	code := d.constructor()
	if code == codeNull {
		return nil
	}
	return d.bytesOf(code)
}

// Decode decodes the section's value.
func (s Section) Decode() (any, error) {
	d := decoder{buf: s.Value}
	v := d.value()
	if d.err != nil {
		return nil, d.err
	}
	return v, nil
}

// RawPair is an entry of an encoded map.
type RawPair struct {
	Key   string // "" if it is neither string nor symbol
	Raw   []byte // key and value as encoded
	Value []byte // the value as encoded
}

// Pairs calls f for every entry of a section that is a map, until f returns false.
func (s Section) Pairs(f func(RawPair) bool) {
	d := decoder{buf: s.Value}
	_, n := d.compound(d.constructor())
	for ; n >= 2 && d.err == nil; n -= 2 {
		var p RawPair
		start := d.offset
		switch code := d.constructor(); code {
		case codeSym8, codeSym32, codeStr8, codeStr32:
			p.Key = string(d.bytesOf(code))
		default:
			d.skipOf(code)
		}
		value := d.offset
		d.skip()
		p.Raw, p.Value = d.buf[start:d.offset], d.buf[value:d.offset]
		if d.err == nil && !f(p) {
			return
		}
	}
}

// DecodeText decodes an encoded string or symbol; ok is false for another type.
func DecodeText(encoded []byte) (text string, ok bool) {
	d := decoder{buf: encoded}
	switch code := d.constructor(); code {
	case codeStr8, codeStr32, codeSym8, codeSym32:
		text = d.textOf(code)
		return text, d.err == nil
	}
	return "", false
}

// AppendSection appends the descriptor of a section; the caller appends the encoded value.
func AppendSection(b []byte, code byte) []byte { return appendDescriptor(b, code) }

// AppendMapHeader appends the constructor of a map of n entries that occupy size bytes.
func AppendMapHeader(b []byte, n, size int) []byte {
	if 2*n <= math.MaxUint8 && size+1 <= math.MaxUint8 {
		return append(b, codeMap8, byte(size+1), byte(2*n))
	}
	b, at := beginCompound(b, codeMap32)
	b = endCompound(b, at, 2*n)
	size += 4
	b[at], b[at+1], b[at+2], b[at+3] = byte(size>>24), byte(size>>16), byte(size>>8), byte(size)
	return b
}

// Message holds the parts of a message that requests to a node such as $management, and their
// replies, use.
type Message struct {
	MessageID     any // string, uint64, UUID or []byte
	ReplyTo       string
	CorrelationID any
	Properties    Map // application-properties
	Value         any // amqp-value body, nil if the body is of another kind
}

// ParseMessage decodes a message.
func ParseMessage(b []byte) (*Message, error) {
	var m Message
	for len(b) > 0 {
		s, rest, err := NextSection(b)
		if err != nil {
			return nil, err
		}
		b = rest
		d := decoder{buf: s.Value}
		switch s.Code {
		case SectionProperties:
			f := d.openFields()
			m.MessageID = f.any()
			f.skipField() // user-id
			f.skipField() // to
			f.skipField() // subject
			m.ReplyTo, _ = f.any().(string)
			m.CorrelationID = f.any()
			f.close()
		case SectionApplicationProperties:
			m.Properties, _ = d.value().(Map)
		case SectionValue:
			m.Value = d.value()
		}
		if d.err != nil {
			return nil, d.err
		}
	}
	return &m, nil
}

// Encode appends the message.
func (m *Message) Encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, SectionProperties), codeList32)
	b = AppendValue(b, m.MessageID)
	b = append(b, codeNull, codeNull, codeNull)
	if m.ReplyTo == "" {
		b = appendNull(b)
	} else {
		b = AppendString(b, m.ReplyTo)
	}
	b = AppendValue(b, m.CorrelationID)
	b = append(b, codeNull, codeNull, codeNull, codeNull, codeNull, codeNull, codeNull) // content-type … reply-to-group-id
	b = endCompound(b, at, 13)
	b = AppendValue(appendDescriptor(b, SectionApplicationProperties), m.Properties)
	return AppendValue(appendDescriptor(b, SectionValue), m.Value)
}
