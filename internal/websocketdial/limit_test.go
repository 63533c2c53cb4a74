package websocketdial

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"
)

const opBinary = 0x82 // of a message of one frame

// huge is the header of a frame of 2^62 bytes.
var huge = binary.BigEndian.AppendUint64([]byte{opBinary, 127}, 1<<62)

func TestLimitFrames(t *testing.T) {
	small := append([]byte{opBinary, 3}, "abc"...)
	masked := append([]byte{opBinary, 0x80 | 2, 1, 2, 3, 4}, "xy"...)
	medium := append(binary.BigEndian.AppendUint16([]byte{opBinary, 126}, 500), make([]byte, 500)...)
	long := append(binary.BigEndian.AppendUint64([]byte{opBinary, 127}, 70_000), make([]byte, 70_000)...)
	empty := []byte{opBinary, 0}
	good := bytes.Join([][]byte{small, masked, empty, medium, long, bytes.Repeat(empty, maxEmpty), small}, nil)
	for name, c := range map[string]struct{ input, refusal string }{
		"good":               {string(good), ""},
		"the largest":        {string(binary.BigEndian.AppendUint64([]byte{opBinary, 127}, maxFrame)), ""},
		"larger":             {string(binary.BigEndian.AppendUint64([]byte{opBinary, 127}, maxFrame+1)), "declares 16777217 bytes"},
		"2^62 bytes":         {string(good) + string(huge), "declares 4611686018427387904 bytes"},
		"2^63 bytes, masked": {string(binary.BigEndian.AppendUint64([]byte{opBinary, 0xff}, 1<<63)) + "mask", "declares 9223372036854775808 bytes"},
		"nothing but empty":  {strings.Repeat(string(empty), maxEmpty+1), "more than 100 WebSocket frames"},
	} {
		for _, by := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader} {
			got, err := io.ReadAll(LimitFrames(by(strings.NewReader(c.input))))
			switch {
			case c.refusal == "" && (err != nil || string(got) != c.input):
				t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(c.input), err)
			case c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)):
				t.Errorf("%s: %v, want that it %s", name, err, c.refusal)
			}
		}
	}
}

// A server that announces 2^62 bytes is refused at once, though no deadline is set.
func TestHugeFrame(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := &hijacked{ResponseWriter: w}
		ws, err := websocket.Accept(response, r, &websocket.AcceptOptions{Subprotocols: []string{"amqp"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.CloseNow()
		if _, err := response.conn.Write(huge); err != nil {
			t.Error(err)
		}
		_, _, _ = ws.Read(r.Context()) // until the client leaves
	}))
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	nc, err := Dial(t.Context(), "wss"+strings.TrimPrefix(server.URL, "https"), &tls.Config{RootCAs: roots}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := nc.Read(make([]byte, 8))
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "a WebSocket frame declares 4611686018427387904 bytes") {
			t.Errorf("read: %v", err)
		}
	case <-ctx.Done():
		t.Error("a frame of 2^62 bytes is waited for")
	}
}

// hijacked is a response whose connection the test writes to.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.ResponseWriter.(http.Hijacker).Hijack()
	h.conn = conn
	return conn, rw, err
}

func FuzzLimitFrames(f *testing.F) {
	f.Add(huge)
	f.Add([]byte{opBinary, 3, 'a', 'b', 'c', opBinary, 126, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, wholeErr := io.ReadAll(LimitFrames(bytes.NewReader(data)))
		_, byteErr := io.ReadAll(LimitFrames(iotest.OneByteReader(bytes.NewReader(data))))
		if (wholeErr == nil) != (byteErr == nil) {
			t.Fatalf("read at once %v, by bytes %v", wholeErr, byteErr)
		}
		if wholeErr == nil && !bytes.Equal(whole, data) {
			t.Fatalf("%d of %d bytes", len(whole), len(data))
		}
	})
}
