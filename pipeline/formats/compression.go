package formats

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/memory"
)

// Compression is how bodies are compressed.
type Compression string

// The compressions.
const (
	none Compression = ""
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
	// Deflate is zlib's format, as HTTP has it (RFC 9110, 8.4.1.2), or deflate without a header, as
	// many clients of HTTP write it.
	Deflate Compression = "deflate"
	// Auto: as each event's property content-encoding says. An event without it is not compressed.
	Auto Compression = "auto"
)

// decompress returns the decompressed body of an event, and how it was compressed. The charge of
// ctx grows by what that takes.
func (d *Decoder) decompress(ctx context.Context, e *sluice.Event) ([]byte, Compression, error) {
	compression := d.cfg.Compression
	if compression == Auto {
		var err error
		if compression, err = declared(e); err != nil {
			return nil, none, err
		}
	}
	body, err := e.Body, error(nil)
	switch compression {
	case Gzip:
		body, err = d.bounded(ctx, sizeOfGzip(e.Body), 1, func(limit int) ([]byte, error) { return gunzip(e.Body, limit) })
	case Deflate:
		body, err = d.bounded(ctx, 16*len(e.Body), 1, func(limit int) ([]byte, error) { return inflate(e.Body, limit) })
	case Zstd:
		body, err = d.bounded(ctx, sizeOfZstd(e.Body), 1, func(limit int) ([]byte, error) { return d.unzstd(e.Body, limit) })
	}
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", compression, err)
	}
	return body, compression, nil
}

// declared returns the compression that an event's property content-encoding names.
func declared(e *sluice.Event) (Compression, error) {
	var value any
	for name, v := range e.Properties {
		if name == contentEncoding {
			value = v
			break
		}
		if strings.EqualFold(name, contentEncoding) {
			value = v
		}
	}
	text := ""
	switch v := value.(type) {
	case nil:
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return none, fmt.Errorf("the property content-encoding is a %T, not a text", v)
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "identity":
		return none, nil
	case "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be":
		return none, nil // IoT Hub has the charset here; JSON shows its own
	case "deflate":
		return Deflate, nil
	case "gzip", "x-gzip":
		return Gzip, nil
	case "zstd":
		return Zstd, nil
	}
	return none, fmt.Errorf("the property content-encoding is %.40q: known are gzip, deflate, zstd, identity, and as a charset utf-8, utf-16, utf-32 and us-ascii", text)
}

// tooLarge is the error of a body that is larger than limit after decoding.
func tooLarge(limit int) error { return tooLargeError(limit) }

type tooLargeError int

func (e tooLargeError) Error() string {
	return fmt.Sprintf("it has more than %d bytes then, the limit (max_size)", int(e))
}

// bounded calls decode with a limit of the size that is expected, and with max_size if that is not
// enough. It charges so many times the limit before.
func (d *Decoder) bounded(ctx context.Context, expected, times int, decode func(limit int) ([]byte, error)) ([]byte, error) {
	for limit, charged := min(expected, d.cfg.MaxSize), 0; ; limit = d.cfg.MaxSize {
		if err := memory.Grow(ctx, int64(times*(limit-charged))); err != nil {
			return nil, err
		}
		charged = limit
		out, err := decode(limit)
		if limit == d.cfg.MaxSize || !errors.As(err, new(tooLargeError)) {
			return out, err
		}
	}
}

// most is how many times gzip makes a body smaller at most.
const most = 1032

// sizeOfGzip returns how large a body is when it is decompressed, as it says itself.
func sizeOfGzip(body []byte) int {
	if len(body) < 4 {
		return 0
	}
	return int(min(int64(binary.LittleEndian.Uint32(body[len(body)-4:])), most*int64(len(body))))
}

// sizeOfZstd returns how large a body is when it is decompressed, as it says itself, or a guess:
// what is compressed as a stream does not say it.
func sizeOfZstd(body []byte) int {
	var h zstd.Header
	if h.Decode(body) == nil && h.HasFCS && h.FrameContentSize <= most*uint64(len(body)) {
		return int(h.FrameContentSize)
	}
	return 16 * len(body)
}

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

func gunzip(body []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(body, []byte("\x1f\x8b")) { // also of bodies that are shorter than a header
		return nil, gzipError(gzip.ErrHeader)
	}
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(body)); err != nil {
		return nil, gzipError(err)
	}
	out, err := readAll(r, len(body), limit)
	if err != nil {
		return nil, gzipError(err)
	}
	if len(out) > limit {
		return nil, tooLarge(limit)
	}
	return out, nil
}

// readAll reads at most one byte more than the limit of what deflate has made of so many bytes.
func readAll(r io.Reader, deflated, limit int) ([]byte, error) {
	// Buffer wants room to see the end.
	out := bytes.NewBuffer(make([]byte, 0, min(limit, most*deflated)+1+bytes.MinRead))
	_, err := io.Copy(out, io.LimitReader(r, int64(limit)+1))
	return out.Bytes(), err
}

func inflate(body []byte, limit int) ([]byte, error) {
	var r io.Reader
	in := bytes.NewReader(body) // a ByteReader: no byte after the end is read
	if hasZlibHeader(body) {
		z, err := zlib.NewReader(in)
		if err != nil {
			return nil, inflateError(err)
		}
		r = z
	} else {
		r = flate.NewReader(in)
	}
	out, err := readAll(r, len(body), limit)
	switch {
	case err != nil:
		return nil, inflateError(err)
	case len(out) > limit:
		return nil, tooLarge(limit)
	case in.Len() > 0:
		return nil, errors.New("it is not deflate: bytes follow its end")
	}
	return out, nil
}

// hasZlibHeader reports whether a body begins as RFC 1950 has it. Deflate alone would have to begin
// with a stored block whose padding is not zero, which no encoder writes.
func hasZlibHeader(body []byte) bool {
	return len(body) >= 2 && body[0]&0x0f == 8 && body[0]>>4 <= 7 && (int(body[0])<<8|int(body[1]))%31 == 0
}

func inflateError(err error) error {
	switch {
	case errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrDictionary):
		return errors.New("it is not deflate")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is cut off")
	}
	return errors.New("it is damaged: " + err.Error())
}

func gzipError(err error) error {
	switch {
	case errors.Is(err, gzip.ErrHeader):
		return errors.New("it is not gzip")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is cut off")
	}
	return errors.New("it is damaged: " + strings.TrimPrefix(err.Error(), "gzip: "))
}

// leastWindow is the size of zstd's window that every decoder should support (RFC 8878, 3.1.1.1.2):
// senders that compress a stream declare it whatever the size of the body.
const leastWindow = 8 << 20

func newZstd(limit int) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(uint64(max(limit, leastWindow))), zstd.WithDecoderConcurrency(0))
}

func (d *Decoder) unzstd(body []byte, limit int) ([]byte, error) {
	decoder, err := d.zstd()
	if err != nil {
		return nil, err
	}
	if len(body) == 0 { // which the decoder takes for an empty stream
		return nil, errors.New("it is not zstd")
	}
	out, err := decoder.DecodeAll(body, make([]byte, 0, limit))
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, tooLarge(limit)
	case errors.Is(err, zstd.ErrMagicMismatch):
		return nil, errors.New("it is not zstd")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it is cut off")
	case err != nil:
		return nil, errors.New("it is damaged: " + err.Error())
	}
	return out, nil
}
