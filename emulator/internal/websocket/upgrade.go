// Package websocket is the server side of the WebSocket protocol (RFC 6455) for
// protocols that are streams of bytes: what clients send in binary messages is
// read from a [net.Conn], and every write to it is a message.
//
// Whether a connection is a WebSocket shows in its first bytes, so that one
// listener serves clients with and without it.
package websocket

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxRequest bounds the request that opens a WebSocket, in bytes.
const maxRequest = 16 << 10

// Endpoint tells which requests become WebSockets.
type Endpoint struct {
	Path      string   // of the request, in any case
	Protocols []string // subprotocols, of which the client must offer one
	// AnyOrigin lets in web pages of every origin, not only those that came from
	// the server's own host: for protocols that prove who the client is.
	AnyOrigin bool
}

// Listener returns a listener whose connections may be WebSockets. Each is told
// from others, and its request answered, with the first Read.
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

// sniff tells whether the connection is a WebSocket, and opens it if so.
func (c *conn) sniff() error {
	c.input.N = maxRequest
	first, err := c.r.Peek(4)
	if err != nil {
		return err
	}
	if string(first) != "GET " {
		c.input.N = math.MaxInt64
		return nil
	}
	req, err := http.ReadRequest(c.r)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) && c.input.N == 0 {
			err = refuse(http.StatusRequestHeaderFieldsTooLarge, "the request has more than %d bytes", maxRequest)
		}
		return c.answer(err)
	}
	protocol, err := c.endpoint.check(req)
	if err != nil {
		return c.answer(err)
	}
	c.input.N = math.MaxInt64
	c.framed = true
	_, err = fmt.Fprintf(c.Conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n", acceptKey(req.Header.Get("Sec-WebSocket-Key")), protocol)
	return err
}

// refusal is a request that doesn't become a WebSocket.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return "WebSocket refused: " + r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// answer tells the client why its request was refused. It returns err.
func (c *conn) answer(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		header := ""
		if r.status == http.StatusUpgradeRequired {
			header = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
		}
		_, _ = fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s\n",
			r.status, http.StatusText(r.status), len(r.text)+1, header, r.text) // err says more
	}
	return err
}

// check returns the subprotocol to speak, or a [*refusal].
func (e Endpoint) check(req *http.Request) (protocol string, err error) {
	key, keyErr := base64.StdEncoding.DecodeString(req.Header.Get("Sec-WebSocket-Key"))
	switch {
	case !strings.EqualFold(strings.TrimSuffix(req.URL.Path, "/"), e.Path):
		return "", refuse(http.StatusNotFound, "there is nothing but a WebSocket at %s", e.Path)
	case !contains(req.Header, "Connection", "upgrade") || !contains(req.Header, "Upgrade", "websocket"):
		return "", refuse(http.StatusUpgradeRequired, "here is a WebSocket only")
	case req.Header.Get("Sec-WebSocket-Version") != "13":
		return "", refuse(http.StatusUpgradeRequired, "the version of the WebSocket protocol must be 13")
	case keyErr != nil || len(key) != 16:
		return "", refuse(http.StatusBadRequest, "Sec-WebSocket-Key must be 16 bytes in base64")
	case !e.AnyOrigin && !ownOrigin(req):
		return "", refuse(http.StatusForbidden, "pages of another origin may not connect")
	}
	for _, p := range e.Protocols {
		if contains(req.Header, "Sec-WebSocket-Protocol", p) {
			return p, nil
		}
	}
	return "", refuse(http.StatusBadRequest, "offer one of the subprotocols %s", strings.Join(e.Protocols, ", "))
}

// contains tells whether a comma-separated header has the word, in any case.
func contains(h http.Header, name, word string) bool {
	return slices.ContainsFunc(h.Values(name), func(line string) bool {
		return slices.ContainsFunc(strings.Split(line, ","), func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), word) })
	})
}

// ownOrigin tells whether a request comes from a page of the same host, or not
// from a page at all.
func ownOrigin(req *http.Request) bool {
	origin := req.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Hostname(), (&url.URL{Host: req.Host}).Hostname())
}

// acceptKey is the proof that the server understood the request (section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // the standard asks for it
	return base64.StdEncoding.EncodeToString(sum[:])
}

func newConn(nc net.Conn, e Endpoint) *conn {
	c := &conn{Conn: nc, endpoint: e, input: io.LimitedReader{R: nc}}
	c.r = bufio.NewReader(&c.input)
	return c
}
