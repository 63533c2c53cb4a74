package amqp

import (
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
// buffer.
type frameReader struct {
	r     io.Reader
	limit func() int // the largest frame that is accepted now
	buf   []byte     // as large as the frames so far, and the amount of input, have required
	start int        // buf[start:end] has been read from r, and not been used
	end   int
	used  int  // of those, by the last frame
	full  bool // the last read filled the buffer: there is more to read at a time
}

// firstBuffer is the size of the read buffer of a new connection, in bytes.
const firstBuffer = 1 << 10

func newFrameReader(r io.Reader, limit func() int) *frameReader {
	return &frameReader{r: r, limit: limit, buf: make([]byte, firstBuffer)}
}

// peek returns the next n bytes of input.
func (fr *frameReader) peek(n int) ([]byte, error) {
	for fr.end-fr.start < n {
		fr.makeRoom(n)
		m, err := fr.r.Read(fr.buf[fr.end:])
		fr.end += m
		fr.full = fr.end == len(fr.buf)
		if err != nil && fr.end-fr.start < n {
			return fr.buf[fr.start:fr.end], err
		}
	}
	return fr.buf[fr.start : fr.start+n], nil
}

// makeRoom makes room for input at the end of the buffer, which it grows for a frame of n bytes, or
// because the input filled it.
func (fr *frameReader) makeRoom(n int) {
	size := len(fr.buf)
	if fr.full {
		size = min(2*size, fr.limit())
	}
	if size = max(size, n); size > len(fr.buf) {
		fr.buf = append(make([]byte, 0, size), fr.buf[fr.start:fr.end]...)[:size]
	} else {
		copy(fr.buf, fr.buf[fr.start:fr.end])
	}
	fr.start, fr.end, fr.full = 0, fr.end-fr.start, false
}

// header reads the eight bytes of a protocol header.
func (fr *frameReader) header() (h [8]byte, err error) {
	fr.release()
	b, err := fr.peek(len(h))
	if err != nil {
		if errors.Is(err, io.EOF) && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return h, err
	}
	fr.used = copy(h[:], b)
	return h, nil
}

// unused is how many bytes of the last frame and those after it have been read from the network.
func (fr *frameReader) unused() int { return fr.end - fr.start }

func (fr *frameReader) release() {
	fr.start += fr.used
	fr.used = 0
}

// next returns the next frame. An [*Error] means malformed input; any other error is the network's.
func (fr *frameReader) next() (frame, error) {
	fr.release()
	h, err := fr.peek(frameHeaderSize)
	if err != nil {
		if errors.Is(err, io.EOF) && len(h) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(h)
	offset := int(h[4]) * 4
	kind, channel := h[5], binary.BigEndian.Uint16(h[6:])
	switch limit := fr.limit(); {
	case uint64(size) > uint64(limit):
		return frame{}, Errorf(CondFraming, "frame of %d bytes exceeds the maximum of %d", size, limit)
	case offset < frameHeaderSize || uint32(offset) > size:
		return frame{}, Errorf(CondFraming, "frame of %d bytes with its data offset at %d", size, offset)
	}
	b, err := fr.peek(int(size))
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
