//go:build unix

package sqlservertest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// wire reads SQL Server's protocol, TDS 7.2 or later without TLS and MARS, as far as needed to find a
// COMMIT and its answer: https://learn.microsoft.com/openspecs/windows_protocols/ms-tds
type wire struct {
	greeted bool // PRELOGIN is answered; from then on, answers have tokens
	tokens  tokens
}

func newWire() commitproxy.Wire { return &wire{} }

// Types of packets.
const (
	packetBatch       = 1
	packetProcedure   = 3
	packetAnswer      = 4
	packetAttention   = 6 // cancels what the connection executes
	packetBulk        = 7
	packetToken       = 8 // of Microsoft Entra ID
	packetTransaction = 14
	packetLogin       = 16
	packetSSPI        = 17
	packetPrelogin    = 18
)

// Flags of a packet's status.
const (
	statusLast   = 0x01 // of its message
	statusIgnore = 0x02 // the client has given up the message
)

// maxMessage bounds a message that is kept in memory; bulk copies are not.
const maxMessage = 64 << 20

// Request returns a whole message, unless it contains no statement.
func (w *wire) Request(r *bufio.Reader) (commitproxy.Request, error) {
	var request commitproxy.Request
	var body []byte
	for {
		p, err := readPacket(r)
		if err != nil {
			return commitproxy.Request{}, err
		}
		if len(request.Bytes) > 0 && p.kind() != packet(request.Bytes).kind() {
			return commitproxy.Request{}, fmt.Errorf("packet of type %d within a message of type %d", p.kind(), packet(request.Bytes).kind())
		}
		if len(request.Bytes)+len(p) > maxMessage {
			return commitproxy.Request{}, fmt.Errorf("message of more than %d bytes", maxMessage)
		}
		request.Bytes = append(request.Bytes, p...)
		switch p.kind() {
		case packetBatch, packetProcedure, packetTransaction, packetPrelogin:
			body = append(body, p.body()...)
			if !p.last() {
				continue
			}
		case packetBulk, packetToken, packetLogin, packetSSPI, packetAttention:
		default:
			return commitproxy.Request{}, fmt.Errorf("packet of type %d, which the proxy cannot read", p.kind())
		}
		if p.kind() == packetPrelogin && !unencrypted(body) {
			return commitproxy.Request{}, errors.New("the client asks for encryption, which the proxy cannot read: use encrypt=disable")
		}
		if !p.ignored() {
			request.Statements, request.Commit = statements(p.kind(), body)
		}
		request.Answered = p.last() && p.kind() != packetAttention
		return request, nil
	}
}

// Answer returns a packet.
func (w *wire) Answer(r *bufio.Reader) (commitproxy.Answer, error) {
	p, err := readPacket(r)
	if err != nil {
		return commitproxy.Answer{}, err
	}
	if p.kind() != packetAnswer {
		return commitproxy.Answer{}, fmt.Errorf("answer of type %d", p.kind())
	}
	answer := commitproxy.Answer{Bytes: p, Done: p.last()}
	if w.greeted {
		answer.Tags = w.tokens.read(p.body(), p.last())
	}
	w.greeted = w.greeted || p.last()
	return answer, nil
}

// packet is a part of a message, with its header.
type packet []byte

const headerLength = 8

func (p packet) kind() byte    { return p[0] }
func (p packet) last() bool    { return p[1]&statusLast != 0 }
func (p packet) ignored() bool { return p[1]&statusIgnore != 0 }
func (p packet) body() []byte  { return p[headerLength:] }

func readPacket(r *bufio.Reader) (packet, error) {
	head, err := r.Peek(headerLength)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(head[2:])
	if n < headerLength {
		return nil, fmt.Errorf("packet of %d bytes", n)
	}
	p := make(packet, n)
	_, err = io.ReadFull(r, p)
	return p, err
}
