package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression types of record batches.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

// errTooLarge means that data decompresses to more than the limit.
var errTooLarge = errors.New("too large")

// decompress appends the decompressed data to into, which it may return grown. The result has at
// most limit bytes.
func decompress(into, data []byte, codec int8, limit int) ([]byte, error) {
	switch codec {
	case codecGzip:
		r := gzips.Get().(*gzip.Reader)
		defer gzips.Put(r)
		if err := r.Reset(bytes.NewReader(data)); err != nil {
			return nil, err
		}
		return appendAll(into, r, limit)
	case codecSnappy:
		return appendSnappy(into, data, limit)
	case codecLZ4:
		r := lz4s.Get().(*lz4.Reader)
		defer lz4s.Put(r)
		r.Reset(bytes.NewReader(data))
		return appendAll(into, r, limit)
	case codecZstd:
		r, err := zstds(limit)
		if err != nil {
			return nil, err
		}
		defer zstdPool(limit).Put(r)
		out, err := r.DecodeAll(data, into)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return nil, errTooLarge
		}
		return out, err
	}
	return nil, fmt.Errorf("unknown compression type %d", codec)
}

// Decompressors are kept for the next batch: each has large tables.
var (
	gzips    = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4s     = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdsMu  sync.Mutex
	zstdsFor = map[int]*sync.Pool{} // by limit; few, and never removed
)

func zstdPool(limit int) *sync.Pool {
	zstdsMu.Lock()
	defer zstdsMu.Unlock()
	if zstdsFor[limit] == nil {
		zstdsFor[limit] = new(sync.Pool)
	}
	return zstdsFor[limit]
}

func zstds(limit int) (*zstd.Decoder, error) {
	if r, ok := zstdPool(limit).Get().(*zstd.Decoder); ok {
		return r, nil
	}
	return zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)))
}

// appendAll appends what a reader returns.
func appendAll(into []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		into = slices.Grow(into, 512)
		n, err := r.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		switch {
		case len(into) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return into, nil
		case err != nil:
			return nil, err
		}
	}
}

// javaSnappy begins the stream format that Java's producers write: this header with two versions,
// then blocks of a length and Snappy data each. Other producers write one block without a header.
var javaSnappy = []byte{130, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func appendSnappy(into, data []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(data, javaSnappy) || len(data) < len(javaSnappy)+8 {
		return appendSnappyBlock(into, data, limit)
	}
	var err error
	for data = data[len(javaSnappy)+8:]; len(data) > 0; {
		if len(data) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		size := uint64(binary.BigEndian.Uint32(data))
		data = data[4:]
		if size > uint64(len(data)) {
			return nil, io.ErrUnexpectedEOF
		}
		if into, err = appendSnappyBlock(into, data[:size], limit); err != nil {
			return nil, err
		}
		data = data[size:]
	}
	return into, nil
}

func appendSnappyBlock(into, block []byte, limit int) ([]byte, error) {
	size, err := s2.DecodedLen(block)
	switch {
	case err != nil:
		return nil, err
	case size > limit-len(into):
		return nil, errTooLarge
	}
	into = slices.Grow(into, size)
	at := len(into)
	if _, err := s2.Decode(into[at:at+size], block); err != nil {
		return nil, err
	}
	return into[:at+size], nil
}
