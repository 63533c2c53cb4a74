package textfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a zstd stream can ask for, in bytes.
const maxWindow = 64 << 20

var (
	gzipSignature = []byte("\x1f\x8b\x08")
	zstdSignature = []byte("\x28\xb5\x2f\xfd")
)

// decompress returns what a compressed input holds. The memory does not depend on how much that is.
func decompress(in *bufio.Reader) (*bufio.Reader, error) {
	head, err := beginning(in)
	if err != nil {
		return nil, err
	}
	var r io.Reader
	var name string
	switch {
	case bytes.HasPrefix(head, gzipSignature):
		name = "gzip"
		r, err = gzip.NewReader(in)
	case bytes.HasPrefix(head, zstdSignature):
		name = "zstd"
		r, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
	default:
		return in, nil
	}
	if err != nil {
		return nil, damaged(name, err)
	}
	return bufio.NewReaderSize(&unpacked{r, name}, bufferSize), nil
}

// unpacked names the compression in the errors of its reader.
type unpacked struct {
	source io.Reader
	name   string
}

func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.source.Read(b)
	if err != nil && err != io.EOF {
		err = damaged(u.name, err)
	}
	return n, err
}

func damaged(name string, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("the %s stream is cut off: copy or compress the file again", name)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("the window of the zstd stream is larger than %d MiB: compress the file with --long=26 or less", maxWindow>>20)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zstd.ErrMagicMismatch):
		return fmt.Errorf("something else follows the %s stream: compress the file again", name)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, zstd.ErrCRCMismatch):
		return fmt.Errorf("the %s stream is damaged (its checksum is wrong): what was read of it may be wrong too", name)
	}
	return fmt.Errorf("%s: %w", name, err)
}
