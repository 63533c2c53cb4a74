//go:build unix

package mariadbtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// What follows reads MySQL's protocol as far as needed to find a COMMIT and its answer:
// https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html and
// https://mariadb.com/kb/en/clientserver-protocol/

// maxMessage bounds a message that is kept in memory. Servers allow 64 MiB at most by default.
const maxMessage = 64<<20 + 1

// Capabilities of a client.
const (
	clientMySQL           = 1 << 0 // unset by a client that knows MariaDB's extended capabilities
	clientCompress        = 1 << 5
	clientSSL             = 1 << 11
	clientMultiStatements = 1 << 16
	clientDeprecateEOF    = 1 << 24

	mariadbCacheMetadata = 1 << 4 // of the extended ones
)

// Commands that need a treatment of their own.
const (
	comQuit             = 0x01
	comQuery            = 0x03
	comChangeUser       = 0x11
	comStmtPrepare      = 0x16
	comStmtExecute      = 0x17
	comStmtSendLongData = 0x18
	comStmtClose        = 0x19
	comStmtFetch        = 0x1c
)

// First bytes of answers.
const (
	isOK      = 0x00
	isInFile  = 0xfb // the server asks for the rows of LOAD DATA LOCAL INFILE
	isEOF     = 0xfe
	isError   = 0xff
	moreComes = 0x0008 // status: another result follows
)

// command is a request whose answer is still to come.
type command struct {
	code byte
	text string // of the statement
}

// wire reads a connection.
type wire struct {
	opened  bool // Request: the client has sent its capabilities
	greeted bool // Answer: the server has sent its greeting
	answer  func(body message, a *commitproxy.Answer)
	current command // whose answer is being read
	rows    int

	mu            sync.Mutex // guards what both directions use
	deprecateEOF  bool
	cacheMetadata bool
	sendsFile     bool // the client sends the rows of LOAD DATA LOCAL INFILE
	waiting       []command
	statements    map[uint32]string // prepared
}

func newWire() commitproxy.Wire { return &wire{statements: make(map[uint32]string)} }

// Request implements [commitproxy.Wire]. It reads a message.
func (w *wire) Request(r *bufio.Reader) (request commitproxy.Request, err error) {
	sequence, body, bytes, err := readMessage(r)
	if err != nil {
		return request, err
	}
	request.Bytes = bytes
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.opened:
		w.opened, request.Answered = true, true
		return request, w.open(body)
	case w.sendsFile:
		w.sendsFile = len(body) > 0
	case sequence == 0: // else it continues the login
		w.command(body, &request)
	}
	return request, nil
}

// open reads the client's capabilities.
func (w *wire) open(body message) error {
	capabilities := body.uint32(0)
	switch {
	case capabilities&clientSSL != 0:
		return errors.New("the client asks for encryption, which the proxy cannot read: leave out tls")
	case capabilities&(clientCompress|clientMultiStatements) != 0:
		return errors.New("the client asks for compression, or for several statements in one text, which the proxy cannot read: leave out compress and multiStatements")
	}
	w.deprecateEOF = capabilities&clientDeprecateEOF != 0
	w.cacheMetadata = capabilities&clientMySQL == 0 && body.uint32(28)&mariadbCacheMetadata != 0
	return nil
}

// command reads a command.
func (w *wire) command(body message, request *commitproxy.Request) {
	c := command{code: body.byte(0)}
	switch c.code {
	case comQuery, comStmtPrepare:
		c.text = string(body.rest(1))
	case comStmtExecute, comStmtFetch:
		c.text = w.statements[body.uint32(1)]
	case comStmtClose:
		delete(w.statements, body.uint32(1))
		return
	case comQuit, comStmtSendLongData:
		return
	}
	if c.code == comQuery || c.code == comStmtExecute {
		request.Statements = []string{c.text}
		request.Commit = firstWord(c.text) == "COMMIT"
	}
	request.Answered = true
	w.waiting = append(w.waiting, c)
}

// Answer implements [commitproxy.Wire]. It reads a message.
func (w *wire) Answer(r *bufio.Reader) (answer commitproxy.Answer, err error) {
	_, body, bytes, err := readMessage(r)
	if err != nil {
		return answer, err
	}
	answer.Bytes = bytes
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.greeted:
		w.greeted, w.answer = true, w.login
		_, rest, _ := strings.Cut(string(body.rest(1)), "\x00") // the server's version
		answer.Session = uint64(message(rest).uint32(0))
	case w.answer != nil:
		w.answer(body, &answer)
	case len(w.waiting) > 0:
		w.current, w.waiting = w.waiting[0], w.waiting[1:]
		w.begin(body, &answer)
	}
	return answer, nil
}

// login reads an answer until the client is logged in.
func (w *wire) login(body message, a *commitproxy.Answer) {
	if first := body.byte(0); first == isOK || first == isError {
		w.done(a)
	}
}

func (w *wire) done(a *commitproxy.Answer) { w.answer, a.Done = nil, true }

// begin reads the first message of a command's answer.
func (w *wire) begin(body message, a *commitproxy.Answer) {
	switch w.current.code {
	case comQuery, comStmtExecute:
		w.result(body, a)
	case comStmtFetch:
		w.rows = 0
		w.answer = w.row
		w.row(body, a)
	case comStmtPrepare:
		w.prepared(body, a)
	case comChangeUser:
		w.answer = w.login
		w.login(body, a)
	default:
		w.done(a)
	}
}

// result reads the first message of a result: of one without rows it is the only one.
func (w *wire) result(body message, a *commitproxy.Answer) {
	switch body.byte(0) {
	case isOK:
		affected, n := body.integer(1)
		_, m := body.integer(1 + n)
		w.end(int(affected), body.uint16(1+n+m), a)
	case isError:
		w.done(a)
	case isInFile:
		w.sendsFile, w.answer = true, w.result
	default:
		columns, n := body.integer(0)
		w.rows, w.answer = 0, w.row
		if !w.cacheMetadata || body.byte(n) == 1 {
			w.skip(w.descriptions(int(columns)), w.row)
		}
	}
}

// prepared reads the first message of the answer to PREPARE.
func (w *wire) prepared(body message, a *commitproxy.Answer) {
	if body.byte(0) != isOK {
		w.done(a)
		return
	}
	w.statements[body.uint32(1)] = w.current.text
	columns, parameters := int(body.uint16(5)), int(body.uint16(7))
	if n := w.descriptions(columns) + w.descriptions(parameters); n > 0 {
		w.skip(n, nil)
	} else {
		w.done(a)
	}
}

// descriptions is how many messages describe n columns or parameters.
func (w *wire) descriptions(n int) int {
	if n > 0 && !w.deprecateEOF {
		n++
	}
	return n
}

// skip has n messages skipped, and next called for the one after them; nil: they end the answer.
func (w *wire) skip(n int, next func(message, *commitproxy.Answer)) {
	w.answer = func(_ message, a *commitproxy.Answer) {
		if n--; n > 0 {
			return
		}
		if w.answer = next; next == nil {
			w.done(a)
		}
	}
}

// row reads a row, or the end of the rows.
func (w *wire) row(body message, a *commitproxy.Answer) {
	switch first := body.byte(0); {
	case first == isError:
		w.done(a)
	case first == isEOF && w.deprecateEOF && len(body) < 1<<24-1:
		_, n := body.integer(1)
		_, m := body.integer(1 + n)
		w.end(w.rows, body.uint16(1+n+m), a)
	case first == isEOF && !w.deprecateEOF && len(body) < 9:
		w.end(w.rows, body.uint16(3), a)
	default:
		w.rows++
	}
}

// end ends a result, and the answer unless another result follows.
func (w *wire) end(count int, status uint16, a *commitproxy.Answer) {
	a.Tags = append(a.Tags, fmt.Sprintf("%s %d", firstWord(w.current.text), count))
	if w.answer = w.result; status&moreComes == 0 {
		w.done(a)
	}
}

// firstWord returns a statement's first word in upper case.
func firstWord(text string) string {
	text = strings.TrimSpace(text)
	if end := strings.IndexAny(text, " \t\n\r;(/"); end >= 0 {
		text = text[:end]
	}
	return strings.ToUpper(text)
}

// readMessage reads a message, with the number of its first packet.
func readMessage(r *bufio.Reader) (sequence byte, body message, bytes []byte, err error) {
	for first := true; ; first = false {
		head, err := r.Peek(4)
		if err != nil {
			return 0, nil, nil, err
		}
		if first {
			sequence = head[3]
		}
		n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
		if len(body)+n > maxMessage {
			return 0, nil, nil, fmt.Errorf("message of more than %d bytes", maxMessage)
		}
		packet := make([]byte, 4+n)
		if _, err := io.ReadFull(r, packet); err != nil {
			return 0, nil, nil, err
		}
		if first {
			bytes, body = packet, packet[4:]
		} else {
			bytes, body = append(bytes, packet...), append(body, packet[4:]...)
		}
		if n < 1<<24-1 {
			return sequence, body, bytes, nil
		}
	}
}

// message is the content of a message. What lies beyond its end is 0.
type message []byte

func (m message) rest(at int) []byte { return m[min(at, len(m)):] }

func (m message) byte(at int) byte {
	if at >= len(m) {
		return 0
	}
	return m[at]
}

func (m message) uint16(at int) uint16 { return uint16(m.number(at, 2)) }
func (m message) uint32(at int) uint32 { return uint32(m.number(at, 4)) }

func (m message) number(at, size int) uint64 {
	var padded [8]byte
	copy(padded[:size], m.rest(at))
	return binary.LittleEndian.Uint64(padded[:])
}

// integer reads an integer of a length that its first byte gives, and returns that length.
func (m message) integer(at int) (value uint64, length int) {
	switch first := m.byte(at); first {
	case 0xfc:
		return m.number(at+1, 2), 3
	case 0xfd:
		return m.number(at+1, 3), 4
	case 0xfe:
		return m.number(at+1, 8), 9
	default:
		return uint64(first), 1
	}
}
