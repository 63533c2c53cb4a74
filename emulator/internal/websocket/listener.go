// Package websocket serves protocols that are streams of bytes, such as AMQP,
// over WebSockets and without them on the same port: the first bytes of a
// connection show which it is. The WebSocket protocol (RFC 6455) itself is
// github.com/coder/websocket's; this package finds the opening request on a
// [net.Listener], checks it, and makes the messages a [net.Conn].
package websocket

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/sluice-go/sluice/emulator/internal/webpage"
	"github.com/sluice-go/sluice/internal/websocketdial"
)

// maxRequest bounds the request that opens a WebSocket, in bytes.
const maxRequest = 16 << 10

// Endpoint says which requests become WebSockets.
type Endpoint struct {
	Path      string   // of the request, in any case
	Protocols []string // subprotocols, of which the client must offer one
	// AnyOrigin admits web pages of every origin, not only those that
	// [webpage.Check] accepts: for protocols that authenticate the client.
	AnyOrigin bool
}

// Listener returns a listener whose connections may be WebSockets. The first
// Read of a connection finds out, and answers the request.
func (e Endpoint) Listener(l net.Listener) net.Listener { return &listener{l, e} }

type listener struct {
	net.Listener
	endpoint Endpoint
}

func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(nc, l.endpoint), nil
}

// open reads the first bytes of the connection. If they are an HTTP request, it
// opens the WebSocket, or refuses the request and returns an error.
func (c *conn) open() error {
	c.input.N = maxRequest
	first, err := c.r.Peek(4)
	if err != nil {
		return err
	}
	if string(first) != "GET " {
		c.input.N = math.MaxInt64
		return nil
	}
	w := &response{conn: c, header: http.Header{}}
	req, err := http.ReadRequest(c.r)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) && c.input.N == 0 {
			return w.refuse(http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request has more than %d bytes", maxRequest))
		}
		return fmt.Errorf("WebSocket request: %w", err)
	}
	foreign := error(nil)
	if !c.endpoint.AnyOrigin {
		foreign = webpage.Check(req)
	}
	switch {
	case !strings.EqualFold(strings.TrimSuffix(req.URL.Path, "/"), c.endpoint.Path):
		return w.refuse(http.StatusNotFound, "the only resource is the WebSocket at "+c.endpoint.Path)
	case foreign != nil:
		return w.refuse(http.StatusForbidden, foreign.Error())
	case !c.endpoint.offered(req):
		return w.refuse(http.StatusBadRequest, "offer one of the subprotocols "+strings.Join(c.endpoint.Protocols, ", "))
	}
	// The origin has been checked.
	ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: c.endpoint.Protocols, InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	// Messages are read as a stream, which the protocol above bounds. Hijack limits the frames.
	ws.SetReadLimit(-1)
	c.ws = ws
	return nil
}

// offered reports whether the client offers one of the subprotocols. Without
// this check [websocket.Accept] would open a WebSocket without a subprotocol.
func (e Endpoint) offered(req *http.Request) bool {
	for _, line := range req.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			for _, p := range e.Protocols {
				if strings.EqualFold(strings.TrimSpace(offer), p) {
					return true
				}
			}
		}
	}
	return false
}

// response is the [http.ResponseWriter] of the only request on a connection.
type response struct {
	conn   *conn
	header http.Header
	status int
	err    error
}

// refuse sends an answer with the reason, and returns that as an error.
func (r *response) refuse(status int, reason string) error {
	http.Error(r, reason, status)
	return errors.New("WebSocket refused: " + reason)
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	r.status = status
	if status != http.StatusSwitchingProtocols {
		r.header.Set("Connection", "close")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = r.header.Write(&b) // a Builder doesn't fail
	b.WriteString("\r\n")
	_, r.err = io.WriteString(r.conn.Conn, b.String())
}

func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.err != nil {
		return 0, r.err
	}
	return r.conn.Conn.Write(b)
}

// Hijack hands the connection over to [websocket.Accept]. What it reads are frames from here on.
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.conn.input.N = math.MaxInt64
	framed := framedConn{r.conn.Conn, websocketdial.LimitFrames(r.conn.r)}
	return framed, bufio.NewReadWriter(bufio.NewReader(framed), bufio.NewWriter(framed)), r.err
}

// framedConn is a connection whose frames are limited.
type framedConn struct {
	net.Conn
	frames io.Reader
}

func (c framedConn) Read(b []byte) (int, error) { return c.frames.Read(b) }
