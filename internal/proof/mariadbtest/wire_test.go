//go:build unix

package mariadbtest

import (
	"bufio"
	"bytes"
	"testing"
)

// FuzzWire reads anything as what a client and a server send; a reader must not fail but by an
// error.
func FuzzWire(f *testing.F) {
	packet := func(sequence byte, body string) []byte {
		return append([]byte{byte(len(body)), byte(len(body) >> 8), 0, sequence}, body...)
	}
	login := packet(1, "\x0d\xa6\x3f\x00\x00\x00\x00\x00\x2d0123456789012345678\x10\x00\x00\x00user\x00")
	f.Add(append(login, packet(0, "\x03COMMIT")...), append(packet(0, "\x0a11.8\x00\x07\x00\x00\x00"), packet(2, "\x00\x00\x00\x02\x00\x00\x00")...))
	f.Add(append(login, packet(0, "\x16SELECT ?")...), append(packet(0, "\x0a8.0\x00\x07\x00\x00\x00"), packet(2, "\x00\x01\x00\x00\x00\x01\x00\x01\x00")...))
	f.Fuzz(func(t *testing.T, client, server []byte) {
		w := newWire()
		requests, answers := bufio.NewReader(bytes.NewReader(client)), bufio.NewReader(bytes.NewReader(server))
		var sent, got []byte
		for {
			r, err := w.Request(requests)
			if err != nil {
				break
			}
			sent = append(sent, r.Bytes...)
			a, err := w.Answer(answers)
			if err != nil {
				break
			}
			got = append(got, a.Bytes...)
		}
		if !bytes.HasPrefix(client, sent) || !bytes.HasPrefix(server, got) {
			t.Error("the bytes that are passed on are not those that have come")
		}
	})
}
