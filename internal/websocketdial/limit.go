package websocketdial

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxFrame is the largest frame that is accepted, in bytes. Azure and its clients put what they
	// write at a time into a frame, which is far less.
	maxFrame = 16 << 20
	// maxEmpty is how many frames without payload may follow each other. They carry nothing of
	// AMQP: a peer that sends them without end would only cost processor time.
	maxEmpty = 100
)

// LimitFrames returns what r reads, the frames of a WebSocket (RFC 6455, section 5.2). It fails at
// a frame that declares more bytes than any peer sends, and at too many without payload.
// github.com/coder/websocket limits only what it has read: a frame of 2^62 bytes looks to it like
// one whose rest has not come yet, until a deadline passes.
func LimitFrames(r io.Reader) io.Reader { return &frameLimit{r: r} }

type frameLimit struct {
	r      io.Reader
	header [14]byte // of the current frame, have bytes of it
	have   int
	left   int64 // bytes of payload to come
	empty  int   // frames without payload in a row
	err    error
}

func (f *frameLimit) Read(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.r.Read(b)
	if f.check(b[:n]); f.err != nil {
		return 0, f.err
	}
	return n, err
}

// check follows the frames in b.
func (f *frameLimit) check(b []byte) {
	for len(b) > 0 && f.err == nil {
		if f.left > 0 {
			n := min(f.left, int64(len(b)))
			f.left, b = f.left-n, b[n:]
			continue
		}
		n := copy(f.header[f.have:f.headerSize()], b)
		f.have, b = f.have+n, b[n:]
		if f.have == f.headerSize() && f.have > 1 {
			f.begin()
		}
	}
}

// headerSize is the size of the header, as far as its first two bytes have come.
func (f *frameLimit) headerSize() int {
	if f.have < 2 {
		return 2
	}
	size := 2
	switch f.header[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if f.header[1]&0x80 != 0 { // masked
		size += 4
	}
	return size
}

// begin checks the length of the frame whose header is complete.
func (f *frameLimit) begin() {
	length := uint64(f.header[1] & 0x7f)
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(f.header[2:]))
	case 127:
		length = binary.BigEndian.Uint64(f.header[2:])
	}
	f.have = 0
	if length > maxFrame {
		f.err = fmt.Errorf("a WebSocket frame declares %d bytes, more than the %d that are accepted: check that the peer speaks AMQP over WebSockets", length, maxFrame)
		return
	}
	f.left = int64(length)
	if f.empty++; length > 0 {
		f.empty = 0
	}
	if f.empty > maxEmpty {
		f.err = fmt.Errorf("more than %d WebSocket frames in a row without payload: check that the peer speaks AMQP over WebSockets", maxEmpty)
	}
}

// limitedTransport limits the frames of the WebSockets that are opened through it.
type limitedTransport struct{ *http.Transport }

func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if body, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		response.Body = limitedBody{body, LimitFrames(body)}
	}
	return response, nil
}

type limitedBody struct {
	io.ReadWriteCloser
	r io.Reader
}

func (b limitedBody) Read(p []byte) (int, error) { return b.r.Read(p) }
