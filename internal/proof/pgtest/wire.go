//go:build unix

package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
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

// frontend reads what a client sends.
type frontend struct {
	r          *bufio.Reader
	started    bool
	cancels    uint32            // the server's process whose query is to be cancelled; 0 if this is no such request
	answered   bool              // what was read last makes the server say that it is ready
	statements map[string]string // prepared: name to text
	portals    map[string]string // bound: name to text
}

func newFrontend(c net.Conn) *frontend {
	return &frontend{r: bufio.NewReaderSize(c, 64<<10), statements: make(map[string]string), portals: make(map[string]string)}
}

// next returns the bytes that may be passed on together: a message, or the
// run of messages up to the Sync that makes the server carry them out; and the
// texts of the statements that they carry out.
func (f *frontend) next() (group []byte, statements []string, err error) {
	if !f.started {
		group, err = f.opening()
		f.answered = f.started
		return group, nil, err
	}
	f.answered = false
	for {
		kind, message, err := readMessage(f.r)
		if err != nil {
			return nil, nil, err
		}
		group = append(group, message...)
		body := message[5:]
		switch kind {
		case 'Q':
			f.answered = true
			return group, []string{cstring(&body)}, nil
		case 'P': // Parse
			name := cstring(&body)
			f.statements[name] = cstring(&body)
		case 'B': // Bind
			portal := cstring(&body)
			f.portals[portal] = f.statements[cstring(&body)]
		case 'E': // Execute
			statements = append(statements, f.portals[cstring(&body)])
		case 'D', 'C': // Describe, Close
		default: // Sync, Flush, COPY data, …
			f.answered = kind == 'S' // Sync
			return group, statements, nil
		}
	}
}

// opening reads a message of the start of a connection.
func (f *frontend) opening() ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(f.r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < 8 || n > 1<<16 {
		return nil, fmt.Errorf("opening message of %d bytes", n)
	}
	message := append(head, make([]byte, n-8)...)
	if _, err := io.ReadFull(f.r, message[8:]); err != nil {
		return nil, err
	}
	switch binary.BigEndian.Uint32(head[4:]) {
	case codeCancel:
		if len(message) >= 12 {
			f.cancels = binary.BigEndian.Uint32(message[8:])
		}
	case codeSSL, codeGSS:
		return nil, fmt.Errorf("the client asks for encryption, which the proxy cannot read: use sslmode=disable")
	default:
		f.started = true
	}
	return message, nil
}

// backend reads what a server sends.
type backend struct{ r *bufio.Reader }

func newBackend(c net.Conn) *backend { return &backend{r: bufio.NewReaderSize(c, 64<<10)} }

// next returns a message, and whether it is the server's word that it waits
// for the next query.
func (b *backend) next() (message []byte, ready bool, err error) {
	kind, message, err := readMessage(b.r)
	return message, kind == 'Z', err
}

// session returns the number of the server's process, if the message contains it.
func (b *backend) session(message []byte) (pid uint32, ok bool) {
	if message[0] != 'K' || len(message) < 9 { // BackendKeyData
		return 0, false
	}
	return binary.BigEndian.Uint32(message[5:]), true
}

// tag is that of a command that was carried out, "" of any other message.
func (b *backend) tag(message []byte) string {
	if message[0] != 'C' { // CommandComplete
		return ""
	}
	body := message[5:]
	return cstring(&body)
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
