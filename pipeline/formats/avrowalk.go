package formats

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
)

// Limits of a body in Avro, which are also those of the library.
const (
	// maxAvroDepth is how deep records, arrays, maps and unions may nest in a body.
	maxAvroDepth = 1000
	// maxNoBytes is how many items an array may have that take no bytes.
	maxNoBytes = 4096
)

// avroWalk makes JSON of a body while it reads it: it takes memory for what it has written, and
// never for what a body announces.
type avroWalk struct {
	jsonWriter
	in      []byte
	offset  int
	depth   int
	entries []avroEntry // of the records and maps around the value that is read
	scratch []byte
}

// avroEntry is an entry of an object in the output, with the comma after it.
type avroEntry struct {
	start, end uint32 // in the output
	key        uint32 // in the body, of a map's
}

var avroWalks = sync.Pool{New: func() any { return new(avroWalk) }}

// decode returns the value in body as JSON of at most limit bytes.
func (s *avroStep) decode(body []byte, limit int) ([]byte, error) {
	if len(body) > math.MaxInt32 || limit > math.MaxInt32 {
		return nil, fmt.Errorf("it has %d bytes, more than are supported", len(body))
	}
	w := avroWalks.Get().(*avroWalk)
	w.jsonWriter = jsonWriter{limit: limit, out: make([]byte, 0, min(limit, 2*len(body)+64))}
	w.in, w.offset, w.depth, w.entries = body, 0, 0, w.entries[:0]
	err := w.value(s)
	if err == nil && w.offset < len(body) {
		err = fmt.Errorf("%d bytes follow the value", len(body)-w.offset)
	}
	out, noTexts := w.out, w.hasNoText
	w.in, w.out = nil, nil
	const most = 64 << 10 // what is kept for the next body
	if cap(w.scratch) <= most && cap(w.entries) <= most/12 {
		avroWalks.Put(w)
	}
	switch {
	case err == errTooLarge:
		return nil, tooLarge(limit)
	case err != nil:
		return nil, fmt.Errorf("it does not fit the schema: %w", oneLine(err, ""))
	case noTexts && bytes.IndexByte(out, noText) >= 0:
		return nil, errors.New("a text is not UTF-8")
	}
	return fitted(out), nil
}

// misfitError says in which field a body does not fit its schema.
type misfitError struct {
	fields []string // from the inside to the outside
	err    error
}

func (e *misfitError) Error() string {
	path := []byte("field ")
	for i, name := range slices.Backward(e.fields) {
		if path = append(path, name...); len(path) > 100 { // so that the cause is not cut off
			path = append(bytes.ToValidUTF8(path[:100], nil), "…"...)
			break
		}
		if i > 0 {
			path = append(path, '.')
		}
	}
	return string(path) + ": " + e.err.Error()
}

// inField returns an error of the value of a field.
func inField(field string, err error) error {
	switch known := err.(type) {
	case *misfitError:
		known.fields = append(known.fields, field)
		return err
	default:
		if err == errTooLarge {
			return err
		}
		return &misfitError{[]string{field}, err}
	}
}

var errTooDeep = fmt.Errorf("it nests deeper than %d levels", maxAvroDepth)

// value reads a value and writes it.
func (w *avroWalk) value(s *avroStep) error {
	switch s.read {
	case avroNull:
		w.out = append(w.out, "null"...)
		return w.room()
	case avroBoolean:
		b, err := w.take(1, avroBoolean)
		if err != nil {
			return err
		}
		w.out = strconv.AppendBool(w.out, b[0] == 1)
		return w.room()
	case avroInt, avroLong:
		n, err := w.whole(s.read)
		if err != nil {
			return err
		}
		return w.number(s, n)
	case avroFloat, avroDouble:
		return w.real(s)
	case avroBytes, avroString, avroFixed:
		b, err := w.bytes(s)
		if err != nil {
			return err
		}
		return w.written(s, b)
	case avroEnum:
		n, err := w.index(avroEnum, len(s.symbols))
		if err != nil {
			return err
		}
		w.out = append(w.out, s.symbols[n]...)
		return w.room()
	}
	if w.depth >= maxAvroDepth {
		return errTooDeep
	}
	w.depth++
	err := w.made(s)
	w.depth--
	return err
}

// made reads a value that is made of others.
func (w *avroWalk) made(s *avroStep) error {
	switch s.read {
	case avroUnion:
		n, err := w.index(avroUnion, len(s.branches))
		if err != nil {
			return err
		}
		return w.value(s.branches[n])
	case avroArray:
		return w.array(s)
	case avroMap:
		return w.object(s)
	}
	return w.record(s)
}

// number writes an int or long.
func (w *avroWalk) number(s *avroStep, n int64) (err error) {
	switch {
	case s.whole != nil:
		w.out, err = s.whole(w.out, n)
	case s.write == avroFloat:
		w.float(float64(float32(n)), 32)
	case s.write == avroDouble:
		w.float(float64(n), 64)
	default:
		w.out = strconv.AppendInt(w.out, n, 10)
	}
	return cmp.Or(err, w.room())
}

// real reads a float or double.
func (w *avroWalk) real(s *avroStep) error {
	size := 8
	if s.read == avroFloat {
		size = 4
	}
	b, err := w.take(size, s.read)
	if err != nil {
		return err
	}
	var f float64
	if s.read == avroFloat {
		f = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	} else {
		f = math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	bits := 64
	if s.write == avroFloat {
		bits = 32
	}
	w.float(f, bits)
	return w.room()
}

// bytes reads bytes, a string or a fixed.
func (w *avroWalk) bytes(s *avroStep) ([]byte, error) {
	if s.read == avroFixed {
		return w.take(s.size, avroFixed)
	}
	return w.counted(s.read)
}

// written writes bytes, a string or a fixed.
func (w *avroWalk) written(s *avroStep, b []byte) (err error) {
	switch {
	case s.bytes != nil:
		w.out, err = s.bytes(w.out, b, s.scale)
		return cmp.Or(err, w.room())
	case s.write == avroString:
		return w.text(b)
	}
	return w.base64(b)
}

func (w *avroWalk) array(s *avroStep) error {
	w.out = append(w.out, '[')
	empty, total := true, int64(0)
	for {
		count, _, err := w.block(avroArray)
		if err != nil {
			return err
		}
		if count == 0 {
			break
		}
		if s.noBytes {
			if count > maxNoBytes-total {
				return errNoBytes
			}
			total += count
		}
		for ; count > 0; count-- {
			if err := w.value(s.item); err != nil {
				return err
			}
			w.out = append(w.out, ',')
		}
		empty = false
	}
	return w.end(empty, ']')
}

var errNoBytes = fmt.Errorf("an array has more than %d items that take no bytes", maxNoBytes)

// end ends an array or object: in place of the comma after the last entry, if there is one.
func (w *avroWalk) end(empty bool, with byte) error {
	if empty {
		w.out = append(w.out, with)
	} else {
		w.out[len(w.out)-1] = with
	}
	return w.room()
}

func (w *avroWalk) record(s *avroStep) error {
	w.out = append(w.out, '{')
	first, empty := len(w.entries), true
	for i := range s.fields {
		field := &s.fields[i]
		if field.skip != nil {
			if err := w.skip(field.skip); err != nil {
				return inField(field.name, err)
			}
			continue
		}
		empty = false
		start := len(w.out)
		if len(field.key) > w.limit-start {
			return errTooLarge
		}
		w.out = append(w.out, field.key...)
		if err := w.field(field); err != nil {
			return inField(field.name, err)
		}
		w.out = append(w.out, ',')
		if s.order != nil {
			w.entries = append(w.entries, avroEntry{start: uint32(start), end: uint32(len(w.out))})
		}
	}
	if s.order != nil {
		w.scratch = w.scratch[:0]
		entries := w.entries[first:]
		for _, i := range s.order {
			w.scratch = append(w.scratch, w.out[entries[i].start:entries[i].end]...)
		}
		copy(w.out[entries[0].start:], w.scratch)
		w.entries = w.entries[:first]
	}
	return w.end(empty, '}')
}

// field writes the value of a field of a record.
func (w *avroWalk) field(f *avroMember) error {
	switch {
	case f.step != nil:
		return w.value(f.step)
	case f.err != nil:
		return f.err
	case len(f.text) > w.limit-len(w.out):
		return errTooLarge
	}
	w.out = append(w.out, f.text...)
	return nil
}

// object reads a map. Its entries are sorted by name afterwards; of those with the same name the
// last one counts.
func (w *avroWalk) object(s *avroStep) error {
	w.out = append(w.out, '{')
	first, sorted := len(w.entries), true
	tidy := first + fewEntries // how many entries there are when those that came again are removed
	var before []byte          // the key of the entry before
	for {
		count, _, err := w.block(avroMap)
		if err != nil {
			return err
		}
		if count == 0 {
			break
		}
		for ; count > 0; count-- {
			start, at := len(w.out), w.offset
			key, err := w.counted(avroMap)
			if err != nil {
				return err
			}
			sorted = sorted && (len(w.entries) == first || bytes.Compare(before, key) < 0)
			before = key
			if err := w.text(key); err != nil {
				return err
			}
			w.out = append(w.out, ':')
			if err := w.value(s.item); err != nil {
				return err
			}
			w.out = append(w.out, ',')
			w.entries = append(w.entries, avroEntry{uint32(start), uint32(len(w.out)), uint32(at)})
			if len(w.entries) == tidy {
				if !sorted {
					w.sort(first)
				}
				tidy = max(first+fewEntries, 2*len(w.entries)-first)
			}
		}
	}
	empty := len(w.entries) == first
	if !sorted {
		w.sort(first)
	}
	w.entries = w.entries[:first]
	return w.end(empty, '}')
}

// fewEntries is how many entries of a map are always kept until it ends. Of more of them, those
// that came again are removed before: a body may have the same one millions of times.
const fewEntries = 4096

// sort sorts the entries of a map from first on, which are at the end of the output, and removes
// those that came again.
func (w *avroWalk) sort(first int) {
	entries := w.entries[first:]
	start := entries[0].start
	for _, e := range entries {
		start = min(start, e.start)
	}
	slices.SortFunc(entries, func(a, b avroEntry) int {
		return cmp.Or(bytes.Compare(w.key(a), w.key(b)), cmp.Compare(a.start, b.start))
	})
	w.scratch = w.scratch[:0]
	kept := entries[:0]
	for i, e := range entries {
		if i+1 == len(entries) || !bytes.Equal(w.key(e), w.key(entries[i+1])) {
			at := start + uint32(len(w.scratch))
			w.scratch = append(w.scratch, w.out[e.start:e.end]...)
			kept = append(kept, avroEntry{at, at + e.end - e.start, e.key})
		}
	}
	w.entries = w.entries[:first+len(kept)]
	w.out = append(w.out[:start], w.scratch...)
}

// key returns the key of an entry of a map.
func (w *avroWalk) key(e avroEntry) []byte {
	size, n := binary.Varint(w.in[e.key:])
	from := int(e.key) + n
	return w.in[from : from+int(size)]
}
