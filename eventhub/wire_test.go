package eventhub

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// wire writes AMQP messages at random, in every encoding that the standard has for a value (part 1,
// section 1.6). It has nothing in common with the decoders that are tested with it.
type wire struct {
	*rand.Rand
	undecodable bool // with types that go-amqp does not decode
	depth       int  // of the value that is written
}

func pick[T any](w *wire, of ...T) T { return of[w.IntN(len(of))] }

func octet(b ...byte) string { return string(b) }

func uint32be(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func uint64be(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

func (w *wire) random(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.Uint32())
	}
	return string(b)
}

// sized writes a format code, a size of one or four bytes, and what has that size.
func (w *wire) sized(short, long byte, content string) string {
	if len(content) < 256 && w.IntN(4) > 0 {
		return octet(short, byte(len(content))) + content
	}
	return octet(long) + uint32be(len(content)) + content
}

func (w *wire) string(s string) string { return w.sized(0xa1, 0xb1, s) }
func (w *wire) symbol(s string) string { return w.sized(0xa3, 0xb3, s) }
func (w *wire) binary(s string) string { return w.sized(0xa0, 0xb0, s) }
func (w *wire) text(s string) string   { return pick(w, w.string(s), w.symbol(s)) }

// compound writes a list, map or array of n elements.
func (w *wire) compound(short, long byte, n int, content string) string {
	if len(content) < 255 && n < 256 && w.IntN(4) > 0 {
		return octet(short, byte(len(content)+1), byte(n)) + content
	}
	return octet(long) + uint32be(len(content)+4) + uint32be(n) + content
}

func (w *wire) list(elements ...string) string {
	if len(elements) == 0 && w.IntN(2) == 0 {
		return "\x45"
	}
	return w.compound(0xc0, 0xd0, len(elements), strings.Join(elements, ""))
}

func (w *wire) mapping(elements ...string) string {
	return w.compound(0xc1, 0xd1, len(elements), strings.Join(elements, ""))
}

// content is the content of a text: mostly a name, sometimes long, sometimes not UTF-8.
func (w *wire) content() string {
	switch w.IntN(12) {
	case 0:
		return w.random(w.IntN(6))
	case 1:
		return pick(w, "", "Zürich", "東京", "a\x00b", "😀", "\uFFFD")
	case 2:
		return strings.Repeat("long", w.IntN(100))
	}
	return pick(w, "a", "b", "type", "trace-id", "price", "iothub-connection-device-id", "IoTHub-x", "dt-subject", "content-encoding", "1", "true", "x-opt-other")
}

// fixed is a type whose values all have the same width in bytes.
type fixed struct {
	code  byte
	width int
}

var (
	withoutBytes = []fixed{{0x40, 0}, {0x41, 0}, {0x42, 0}, {0x43, 0}, {0x44, 0}}
	integers     = []fixed{{0x50, 1}, {0x51, 1}, {0x52, 1}, {0x53, 1}, {0x54, 1}, {0x55, 1}, {0x56, 1}, {0x60, 2}, {0x61, 2}, {0x70, 4}, {0x71, 4}, {0x80, 8}, {0x81, 8}}
	others       = []fixed{{0x72, 4}, {0x82, 8}, {0x83, 8}, {0x98, 16}}
	beyondSDK    = []fixed{{0x73, 4}, {0x74, 4}, {0x84, 8}, {0x94, 16}} // char and the decimals
)

func (w *wire) bits(f fixed) string {
	if f.code == 0x83 && w.IntN(8) > 0 { // a time of this century
		return uint64be(uint64(946684800000 + w.Int64N(3e12)))
	}
	return w.random(f.width)
}

func (w *wire) scalar() string {
	switch w.IntN(8) {
	case 0, 1:
		return w.string(w.content())
	case 2:
		return w.symbol(w.content())
	case 3:
		return w.binary(w.random(w.IntN(20)))
	}
	f := pick(w, pick(w, withoutBytes, integers, others)...)
	if w.undecodable && w.IntN(3) == 0 {
		f = pick(w, beyondSDK...)
	}
	return octet(f.code) + w.bits(f)
}

// key is the key of a map. go-amqp has no map with keys of other types than these, and those of
// floating point can be NaN, which is never the same key.
func (w *wire) key() string {
	if w.IntN(3) > 0 {
		return w.text(w.content())
	}
	if w.undecodable && w.IntN(3) == 0 {
		return w.value()
	}
	f := pick(w, pick(w, withoutBytes, integers)...)
	return octet(f.code) + w.bits(f)
}

// value is a value of any type.
func (w *wire) value() string {
	if w.depth > 4 || w.IntN(3) > 0 {
		return w.scalar()
	}
	w.depth++
	defer func() { w.depth-- }()
	switch w.IntN(4) {
	case 0:
		return w.list(w.values(w.IntN(4))...)
	case 1:
		return w.entries()
	case 2:
		return w.array()
	}
	return w.descriptor() + w.value()
}

// descriptor is none of AMQP's own. Values with those go-amqp makes types of its own of, or
// nothing.
func (w *wire) descriptor() string {
	return "\x00" + pick(w, w.symbol("com.microsoft:"+w.content()), "\x80"+uint64be(1<<32|w.Uint64()>>1))
}

func (w *wire) values(n int) (all []string) {
	for range n {
		all = append(all, w.value())
	}
	return all
}

func (w *wire) entries() string {
	var elements []string
	for range w.IntN(4) {
		elements = append(elements, w.key(), w.value())
	}
	return w.mapping(elements...)
}

// array is an array, whose elements have no constructors of their own.
func (w *wire) array() string {
	n := w.IntN(5)
	wide := func(s string) string { return uint32be(len(s)) + s }
	var constructor string
	var element func() string
	switch kind := w.IntN(6); {
	case kind == 0:
		constructor = pick(w, "\xa0", "\xa1", "\xa3")
		element = func() string { // go-amqp refuses some arrays of empty ones
			s := w.content() + "x"
			s = s[:min(len(s), 255)]
			return octet(byte(len(s))) + s
		}
	case kind == 1:
		constructor = pick(w, "\xb0", "\xb1", "\xb3")
		element = func() string { return wide(w.content()) }
	case kind == 2:
		constructor = "\xd1"
		element = func() string { return wide(uint32be(2) + w.text("k") + w.scalar()) }
	case kind == 3 && w.undecodable:
		constructor = pick(w, "\xd0", w.descriptor()+"\xd0")
		element = func() string { return wide(uint32be(1) + w.value()) }
	case kind == 4 && w.undecodable:
		constructor = "\xe0"
		element = func() string { return "\x03\x01\x50" + w.random(1) }
	default:
		of := pick(w, integers, others)
		if w.undecodable {
			of = beyondSDK
		}
		f := pick(w, of...)
		constructor = octet(f.code)
		element = func() string { return w.bits(f) }
	}
	content := constructor
	for range n {
		content += element()
	}
	return w.compound(0xe0, 0xf0, n, content)
}

var sectionNames = []string{"amqp:header:list", "amqp:delivery-annotations:map", "amqp:message-annotations:map", "amqp:properties:list",
	"amqp:application-properties:map", "amqp:data:binary", "amqp:amqp-sequence:list", "amqp:amqp-value:*", "amqp:footer:map"}

// section is a section of a message, with its descriptor.
func (w *wire) section(code byte, value string) string {
	switch n := w.IntN(10); {
	case n == 0:
		return "\x00\x80" + uint64be(uint64(code)) + value
	case n == 1 && w.undecodable:
		return "\x00" + w.symbol(sectionNames[code-0x70]) + value
	}
	return octet(0x00, 0x53, code) + value
}

// annotations are what the broker says of an event, and sometimes more.
func (w *wire) annotations() string {
	number := w.Uint64() >> 1
	entries := []string{
		w.text("x-opt-sequence-number") + pick(w, "\x81"+uint64be(number), "\x71"+uint32be(int(number>>34)), "\x55"+octet(byte(number>>57))),
		w.text("x-opt-offset") + w.text(pick(w, "0", "4096", "12:4:96", w.content())),
		w.text("x-opt-enqueued-time") + "\x83" + w.bits(fixed{0x83, 8}),
	}
	if w.IntN(2) == 0 {
		entries = append(entries, w.text("x-opt-partition-key")+w.text(w.content()))
	}
	for range max(0, w.IntN(6)-3) {
		entries = append(entries, w.key()+w.value())
	}
	if w.IntN(20) == 0 {
		entries = entries[w.IntN(len(entries)):]
	}
	w.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return w.compound(0xc1, 0xd1, 2*len(entries), strings.Join(entries, ""))
}

// properties is a list of up to 13 fields. One that is null may be left out at the end.
func (w *wire) properties() string {
	all := []string{
		w.value(), w.binary(w.content()), w.string(w.content()), w.string(w.content()), w.string(w.content()), w.value(), w.text(w.content()), w.text(w.content()),
		"\x83" + w.bits(fixed{0x83, 8}), "\x83" + w.bits(fixed{0x83, 8}), w.string(w.content()), pick(w, "\x43", "\x52\x01", "\x70"+w.random(4)), w.string(w.content()),
	}
	for i := range all {
		if w.IntN(3) == 0 {
			all[i] = "\x40"
		}
	}
	return w.list(all[:w.IntN(len(all)+1)]...)
}

// message is a message as a broker sends it.
func (w *wire) message() []byte {
	var m string
	if w.IntN(3) == 0 {
		m += w.section(0x70, w.list(pick(w, "\x41", "\x42", "\x56\x01", "\x40"), "\x50\x07", pick(w, "\x43", "\x70"+w.random(4)), "\x40", "\x52\x03"))
	}
	if w.IntN(6) == 0 {
		m += w.section(0x71, w.entries())
	}
	if w.IntN(20) > 0 {
		m += w.section(0x72, w.annotations())
	}
	if w.IntN(4) > 0 {
		m += w.section(0x73, w.properties())
	}
	if w.IntN(4) > 0 {
		var entries []string
		for range w.IntN(10) {
			entries = append(entries, w.text(w.content()), w.value())
		}
		m += w.section(0x74, w.mapping(entries...))
	}
	switch w.IntN(8) {
	case 0:
		m += w.section(0x77, w.value())
	case 1:
		for range 1 + w.IntN(3) {
			m += w.section(0x76, w.list(w.values(w.IntN(4))...))
		}
	case 2:
		for range w.IntN(4) {
			m += w.section(0x75, pick(w, "\x40", w.binary(w.content())))
		}
	default:
		m += w.section(0x75, w.binary(w.content()))
	}
	if w.IntN(6) == 0 {
		m += w.section(0x78, w.entries())
	}
	return []byte(m)
}
