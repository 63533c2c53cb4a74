//go:build unix

package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// What follows reads PostgreSQL's protocol, version 3, as far as needed to
// find a COMMIT and its answer:
// https://www.postgresql.org/docs/current/protocol-message-formats.html

// maxMessage bounds a message that is kept in memory; COPY data is split by
// clients long before.
const maxMessage = 64 << 20

// Codes of the messages without a type that open a connection.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// wire reads a connection. Only Request uses its fields.
type wire struct {
	started    bool
	statements map[string]string // prepared: name to text
	portals    map[string]string // bound: name to text
}

func newWire() commitproxy.Wire {
	return &wire{statements: make(map[string]string), portals: make(map[string]string)}
}

// Request implements [commitproxy.Wire]. It reads a message, or the run of messages up
// to the Sync that makes the server carry them out.
func (w *wire) Request(r *bufio.Reader) (request commitproxy.Request, err error) {
	if !w.started {
		return w.opening(r)
	}
	for {
		kind, message, err := readMessage(r)
		if err != nil {
			return request, err
		}
		request.Bytes = append(request.Bytes, message...)
		body := message[5:]
		switch kind {
		case 'Q':
			text := cstring(&body)
			request.Statements, request.Commit, request.Answered = []string{text}, commits(text), true
			return request, nil
		case 'P': // Parse
			name := cstring(&body)
			w.statements[name] = cstring(&body)
		case 'B': // Bind
			portal := cstring(&body)
			w.portals[portal] = w.statements[cstring(&body)]
		case 'E': // Execute
			text := w.portals[cstring(&body)]
			request.Statements = append(request.Statements, text)
			request.Commit = request.Commit || commits(text)
		case 'D', 'C': // Describe, Close
		default: // Sync, Flush, COPY data, …
			request.Answered = kind == 'S' // Sync
			return request, nil
		}
	}
}

// opening reads a message of the start of a connection.
func (w *wire) opening(r *bufio.Reader) (request commitproxy.Request, err error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return request, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < 8 || n > 1<<16 {
		return request, fmt.Errorf("opening message of %d bytes", n)
	}
	message := append(head, make([]byte, n-8)...)
	if _, err := io.ReadFull(r, message[8:]); err != nil {
		return request, err
	}
	request.Bytes = message
	switch binary.BigEndian.Uint32(head[4:]) {
	case codeCancel:
		if len(message) >= 12 {
			request.Cancels = uint64(binary.BigEndian.Uint32(message[8:]))
		}
	case codeSSL, codeGSS:
		return request, fmt.Errorf("the client asks for encryption, which the proxy cannot read: use sslmode=disable")
	default:
		w.started, request.Answered = true, true
	}
	return request, nil
}

// Answer implements [commitproxy.Wire]. It reads a message.
func (w *wire) Answer(r *bufio.Reader) (answer commitproxy.Answer, err error) {
	kind, message, err := readMessage(r)
	if err != nil {
		return answer, err
	}
	answer.Bytes = message
	body := message[5:]
	switch kind {
	case 'K': // BackendKeyData
		if len(body) >= 4 {
			answer.Session = uint64(binary.BigEndian.Uint32(body))
		}
	case 'C': // CommandComplete
		answer.Tags = []string{cstring(&body)}
	case 'Z': // ReadyForQuery
		answer.Done = true
	}
	return answer, nil
}

func readMessage(r *bufio.Reader) (kind byte, message []byte, err error) {
	head, err := r.Peek(5)
	if err != nil {
		return 0, nil, err
	}
	kind = head[0]
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > maxMessage {
		return 0, nil, fmt.Errorf("message of %d bytes", n)
	}
	message = make([]byte, n+1)
	_, err = io.ReadFull(r, message)
	return kind, message, err
}

// cstring takes a zero-terminated string off the front of b.
func cstring(b *[]byte) string {
	text, rest, _ := bytes.Cut(*b, []byte{0})
	*b = rest
	return string(text)
}

// commits reports whether one of the statements in sql is a COMMIT.
func commits(sql string) bool {
	for part := range strings.SplitSeq(sql, ";") {
		word, _, _ := strings.Cut(strings.TrimSpace(part), " ")
		if strings.EqualFold(word, "commit") {
			return true
		}
	}
	return false
}
