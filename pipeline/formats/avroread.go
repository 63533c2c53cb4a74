package formats

import (
	"errors"
	"fmt"
	"math"
)

// short returns the error of a body that ends within a value.
func short(kind avroKind) error { return fmt.Errorf("it ends within a value (%s)", kind) }

// take reads size bytes.
func (w *avroWalk) take(size int, kind avroKind) ([]byte, error) {
	if size > len(w.in)-w.offset {
		return nil, short(kind)
	}
	w.offset += size
	return w.in[w.offset-size : w.offset : w.offset], nil
}

// whole reads an int or long. An int that has more than 32 bits is an error.
func (w *avroWalk) whole(kind avroKind) (int64, error) {
	var n uint64
	for i := 0; ; i++ {
		if w.offset >= len(w.in) {
			return 0, short(kind)
		}
		b := w.in[w.offset]
		w.offset++
		if i == 9 && b > 1 || kind == avroInt && i == 4 && b > 0xf {
			return 0, fmt.Errorf("a number is too large for a value (%s)", kind)
		}
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return int64(n>>1) ^ -int64(n&1), nil
		}
	}
}

// counted reads bytes after their number.
func (w *avroWalk) counted(kind avroKind) ([]byte, error) {
	n, err := w.whole(avroLong)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return nil, fmt.Errorf("invalid negative %s length %d", kind, n)
	case n > int64(len(w.in)-w.offset):
		return nil, short(kind)
	}
	return w.take(int(n), kind)
}

// index reads which of several symbols or branches a value has.
func (w *avroWalk) index(kind avroKind, count int) (int, error) {
	n, err := w.whole(avroInt)
	if err == nil && (n < 0 || n >= int64(count)) {
		err = fmt.Errorf("a value has the %s index %d: its schema has %d of them", kind, n, count)
	}
	return int(n), err
}

// block reads how many values follow in an array or map, 0 at its end, and how many bytes they
// have, 0 if the body does not say that.
func (w *avroWalk) block(kind avroKind) (count, size int64, err error) {
	count, err = w.whole(avroLong)
	switch {
	case err != nil || count >= 0:
		return count, 0, err
	case count == math.MinInt64:
		return 0, 0, fmt.Errorf("invalid %s block count", kind)
	}
	size, err = w.whole(avroLong)
	return -count, size, err
}

// skip reads a value of a field that the reader does not have. What it does is bounded by the bytes
// of the value: types without bytes are not looked at.
func (w *avroWalk) skip(t *avroType) error {
	if t.noBytes {
		return nil
	}
	var err error
	switch t.kind {
	case avroBoolean:
		_, err = w.take(1, t.kind)
	case avroInt, avroLong:
		_, err = w.whole(t.kind)
	case avroEnum:
		_, err = w.whole(avroInt)
	case avroFloat:
		_, err = w.take(4, t.kind)
	case avroDouble:
		_, err = w.take(8, t.kind)
	case avroFixed:
		_, err = w.take(t.size, t.kind)
	case avroBytes, avroString:
		_, err = w.counted(t.kind)
	default:
		if w.depth >= maxAvroDepth {
			return errTooDeep
		}
		w.depth++
		err = w.skipMade(t)
		w.depth--
	}
	return err
}

// skipMade reads a value that is made of others.
func (w *avroWalk) skipMade(t *avroType) error {
	switch t.kind {
	case avroUnion:
		n, err := w.index(avroUnion, len(t.branches))
		if err != nil {
			return err
		}
		return w.skip(t.branches[n])
	case avroRecord:
		for i := range t.fields {
			if err := w.skip(t.fields[i].typ); err != nil {
				return err
			}
		}
		return nil
	}
	return w.skipBlocks(t)
}

// skipBlocks reads an array or map.
func (w *avroWalk) skipBlocks(t *avroType) error {
	noBytes := t.kind == avroArray && t.item.noBytes
	for total := int64(0); ; {
		count, size, err := w.block(t.kind)
		switch {
		case err != nil || count == 0:
			return err
		case size < 0 || size > int64(len(w.in)-w.offset):
			return errors.New("a block of an array or map is longer than the body")
		case size > 0:
			w.offset += int(size)
			continue
		case noBytes && count > maxNoBytes-total:
			return errNoBytes
		case noBytes:
			total += count
			continue
		}
		for ; count > 0; count-- {
			if t.kind == avroMap {
				if _, err := w.counted(avroString); err != nil {
					return err
				}
			}
			if err := w.skip(t.item); err != nil {
				return err
			}
		}
	}
}
