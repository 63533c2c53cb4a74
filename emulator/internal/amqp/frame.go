package amqp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

const (
	frameHeaderSize = 8
	frameAMQP       = 0
	frameSASL       = 1

	// minFrameSize is the max-frame-size that every peer must support (section 2.4.1).
	minFrameSize = 512
)

// frame is one frame (section 2.3). Its body is empty for a heartbeat, and valid only until the
// next frame is read.
type frame struct {
	kind    byte
	channel uint16
	body    []byte
}

// frameReader reads frames from a connection without copying them: the body is a part of the read
// buffer, which is as large as the largest frame allowed.
type frameReader struct {
	r    *bufio.Reader
	used int
}

func newFrameReader(r io.Reader, maxFrame int) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, maxFrame)}
}

// header reads the eight bytes of a protocol header.
func (fr *frameReader) header() ([8]byte, error) {
	var h [8]byte
	if err := fr.release(); err != nil {
		return h, err
	}
	_, err := io.ReadFull(fr.r, h[:])
	return h, err
}

func (fr *frameReader) release() error {
	_, err := fr.r.Discard(fr.used)
	fr.used = 0
	return err
}

// next returns the next frame. An [*Error] means malformed input; any other error is the network's.
func (fr *frameReader) next() (frame, error) {
	if err := fr.release(); err != nil {
		return frame{}, err
	}
	h, err := fr.r.Peek(frameHeaderSize)
	if err != nil {
		if errors.Is(err, io.EOF) && len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(h)
	offset := int(h[4]) * 4
	kind, channel := h[5], binary.BigEndian.Uint16(h[6:])
	switch {
	case uint64(size) > uint64(fr.r.Size()):
		return frame{}, Errorf(CondFraming, "frame of %d bytes exceeds the maximum of %d", size, fr.r.Size())
	case offset < frameHeaderSize || uint32(offset) > size:
		return frame{}, Errorf(CondFraming, "frame of %d bytes with its data offset at %d", size, offset)
	}
	b, err := fr.r.Peek(int(size))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	fr.used = int(size)
	return frame{kind: kind, channel: channel, body: b[offset:size:size]}, nil
}

// beginFrame appends a frame header whose size [endFrame] fills in.
func beginFrame(b []byte, kind byte, channel uint16) ([]byte, int) {
	at := len(b)
	return append(b, 0, 0, 0, 0, 2, kind, byte(channel>>8), byte(channel)), at
}

func endFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at))
	return b
}
