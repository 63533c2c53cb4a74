package emulator_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// The encoding of AMQP that an attack needs (sections 1.6 and 2.7).

func wireFrame(kind byte, channel uint16, performative byte, payload []byte, fields ...[]byte) []byte {
	list := bytes.Join(fields, nil)
	b := make([]byte, 4, 32+len(list)+len(payload))
	b = append(b, 2, kind, byte(channel>>8), byte(channel), 0, 0x53, performative)
	b = append(wireComposite(b, list, len(fields)), payload...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

func wireComposite(b, list []byte, n int) []byte {
	b = binary.BigEndian.AppendUint32(append(b, 0xd0), uint32(len(list)+4))
	return append(binary.BigEndian.AppendUint32(b, uint32(n)), list...)
}

func wireText(s string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xb1}, uint32(len(s))), s...)
}

func wireUint(n int) []byte { return binary.BigEndian.AppendUint32([]byte{0x70}, uint32(n)) }

func wireBool(v bool) []byte {
	if v {
		return []byte{0x41}
	}
	return []byte{0x42}
}

var wireNull = []byte{0x40}

// wireOpening is what a client sends up to the beginning of a session.
func wireOpening() []byte {
	return slicesOf("AMQP\x03\x01\x00\x00",
		wireFrame(1, 0, 0x41, nil, []byte("\xa3\x09ANONYMOUS")), "AMQP\x00\x01\x00\x00",
		wireFrame(0, 0, 0x10, nil, wireText("attack"), wireText("host"), wireUint(1<<20)), wireBegin(0))
}

func wireBegin(channel int) []byte {
	return wireFrame(0, uint16(channel), 0x11, nil, wireNull, wireUint(0), wireUint(0), wireUint(0))
}

func wireAttach(name, address string, handle int, receives bool) []byte {
	terminus := func(code byte) []byte { return wireComposite([]byte{0, 0x53, code}, wireText(address), 1) }
	return wireFrame(0, 0, 0x12, nil, wireText(name), wireUint(handle), wireBool(receives), wireNull, wireNull,
		terminus(0x28), terminus(0x29), wireNull, wireNull, wireUint(0))
}

func wireTransfer(handle, id int, more bool, payload []byte) []byte {
	return wireFrame(0, 0, 0x14, payload, wireUint(handle), wireUint(id), []byte("\xa0\x01a"), wireUint(0), wireBool(false), wireBool(more))
}

func slicesOf(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// attacks are what clients without a token send to make the server keep as much as possible.
// None of them reads.
func attacks() map[string][]byte {
	long := strings.Repeat("x", 1000)
	cbs := slicesOf(wireAttach("a", "$cbs", 0, false), wireAttach("b", "$cbs", 1, true))
	request := slicesOf("\x00\x53\x73\xd0", binary.BigEndian.AppendUint32(nil, 4+2+1+5+9000), "\x00\x00\x00\x05", wireText(strings.Repeat("i", 9000)),
		wireNull, wireNull, wireNull, wireText("b"), "\x00\x53\x77\x40")
	repeat := func(n int, f func(i int) []byte) (b []byte) {
		for i := range n {
			b = append(b, f(i)...)
		}
		return b
	}
	sessions := repeat(20, func(i int) []byte { return wireBegin(i + 1) })
	links := repeat(20, func(i int) []byte { return wireAttach(fmt.Sprint(i, long), long, i+2, i%2 == 0) })
	requests := repeat(20, func(i int) []byte { return wireTransfer(0, i, false, request) })
	small := repeat(1000, func(i int) []byte { return wireTransfer(0, i, false, []byte("\x00\x53\x77\x40")) })
	unfinished := repeat(20, func(i int) []byte { return wireTransfer(0, 0, true, bytes.Repeat([]byte{byte(i)}, 10_000)) })
	echo := wireFrame(0, 0, 0x13, nil, wireNull, wireUint(0), wireUint(0), wireUint(0), wireNull, wireNull, wireNull, wireNull, wireNull, wireBool(true))
	partial := []byte{0, 1, 0, 0, 2, 0, 0, 0, 0, 0x53, 0x14}
	attack := func(parts ...[]byte) []byte { return slicesOf(wireOpening(), bytes.Join(parts, nil)) }
	return map[string][]byte{
		"sessions and links":     attack(cbs, links, sessions),
		"many requests":          attack(cbs, requests),
		"small messages":         attack(cbs, small),
		"an unfinished message":  attack(cbs, unfinished),
		"answers are not read":   attack(cbs, bytes.Repeat(echo, 50_000)),
		"an unfinished frame":    attack(cbs, partial, make([]byte, 65_000)),
		"begins and ends":        attack(bytes.Repeat(slicesOf(wireBegin(1), wireFrame(0, 1, 0x17, nil)), 20_000)),
		"links that are refused": attack(bytes.Repeat(wireAttach(long, long, 7, true), 10)),
		"nothing after the open": wireOpening(),
		"all of it":              attack(cbs, links[:5*len(links)/20], sessions[:5*len(sessions)/20], requests[:len(requests)/20], unfinished),
	}
}

// 1,000 connections without a token, each doing its worst, take at most 100 MiB; a client with
// a key is served all the same.
func TestUnauthenticatedMemory(t *testing.T) {
	need.RealTime(t)
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "all", Secret: "c2VjcmV0"}}})
	kinds := attacks()
	const most = 100 << 10 // a connection: 100 MiB for 1,000
	for name, bytes := range kinds {
		t.Run(name, func(t *testing.T) {
			before := memory()
			conns := make([]net.Conn, 1000)
			if len(bytes) > 1<<20 {
				conns = conns[:100] // to save time
			}
			attackAll(t, srv.Addr(), bytes, conns)
			if each := (memoryAtRest(srv) - before) / int64(len(conns)); each > most {
				t.Errorf("%d KiB a connection", each>>10)
			} else {
				t.Logf("%d KiB a connection", each>>10)
			}
			send(t, producer(t, srv, "h"), to0(), "a")
			for _, c := range conns {
				c.Close()
			}
		})
	}
}

// attackAll opens the connections, and sends the bytes on each until the server reads no more.
func attackAll(t *testing.T, addr string, bytes []byte, conns []net.Conn) {
	var wg sync.WaitGroup
	next := make(chan int, len(conns))
	for i := range conns {
		next <- i
	}
	close(next)
	for range 100 {
		wg.Go(func() {
			for i := range next {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetReadBuffer(4 << 10)
				}
				_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
				_, _ = c.Write(bytes) // the deadline, or the server has closed the connection
				conns[i] = c
			}
		})
	}
	wg.Wait()
}

// memoryAtRest returns what the process needs while the server neither reads nor writes. Where the
// server is only slow, it does so during the two collections, and what it has made meanwhile would
// count although it is garbage.
func memoryAtRest(srv *emulator.Server) int64 {
	for ; ; <-time.After(100 * time.Millisecond) {
		before := srv.Traffic()
		if needed := memory(); srv.Traffic() == before {
			return needed
		}
	}
}

// memory returns what the process needs: the heap after a collection, and the stacks.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A connection that proves no right within the time is closed, whatever it does meanwhile.
func TestAuthenticationTimeout(t *testing.T) {
	need.RealTime(t)
	const timeout = 300 * time.Millisecond
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "all", Secret: "c2VjcmV0"}}, AuthTimeout: timeout})
	for name, bytes := range attacks() {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", srv.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			go func() { _, _ = c.Write(bytes) }()
			if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("the connection was not closed")
			}
		})
	}
	var p *azeventhubs.ProducerClient
	retryIfSlow(t, timeout, func(ctx context.Context) error {
		p = producer(t, srv, "h")
		return trySend(ctx, p, to0(), "a")
	})
	<-time.After(500 * time.Millisecond) // longer than the time-out: a connection with a token stays
	before := srv.Traffic().Received
	send(t, p, to0(), "b")
	if n := srv.Traffic().Received - before; n > 1000 {
		t.Errorf("%d bytes for one event: the client connected again", n)
	}
}

// exchange sends bytes and reads frames until the performatives have come that are wanted, in
// order and with others between them. It returns what it has read.
func exchange(t *testing.T, addr string, bytes []byte, want ...byte) (got []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(bytes); err != nil {
		t.Fatal(err)
	}
	for len(want) > 0 {
		head := make([]byte, 8)
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatalf("%v; performative %#x did not come, but %q", err, want[0], got)
		}
		if string(head[:4]) == "AMQP" {
			continue
		}
		body := make([]byte, binary.BigEndian.Uint32(head)-8)
		if _, err := io.ReadFull(c, body); err != nil {
			t.Fatal(err)
		}
		got = append(got, body...)
		if len(body) > 2 && body[2] == want[0] {
			want = want[1:]
		}
	}
	return got
}

func errorText(b []byte) error { return fmt.Errorf("%s", b) }
