package eventhub

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

func TestPerformative(t *testing.T) {
	for _, c := range []struct {
		frame []byte
		want  byte
	}{
		{nil, 0},
		{[]byte("AMQP\x00\x01\x00\x00"), 0},
		{[]byte{0, 0, 0, 8, 2, 0, 0, 0}, 0},
		{[]byte{0, 0, 0, 11, 2, 0, 0, 0, 0, 0x53, 0x12}, attachFrame},
		{[]byte{0, 0, 0, 15, 3, 0, 0, 0, 9, 9, 9, 9, 0, 0x53, 0x13}, flowFrame},
		{[]byte{0, 0, 0, 11, 2, 1, 0, 0, 0, 0x53, 0x12}, 0},
		{[]byte{0, 0, 0, 11, 255, 0, 0, 0, 0, 0x53, 0x12}, 0},
		{[]byte{0, 0, 0, 11, 2, 0, 0, 0, 0, 0x80, 0x12}, 0},
	} {
		if got := performative(c.frame); got != c.want {
			t.Errorf("%x: got %#x, want %#x", c.frame, got, c.want)
		}
	}
}

// A link is attached once; other links are not affected.
func TestLinkIsAttachedOnce(t *testing.T) {
	frame := func(performative byte, text string) []byte {
		return append([]byte{0, 0, 0, byte(11 + len(text)), 2, 0, 0, 0, 0, 0x53, performative}, text...)
	}
	const path = "flights/ConsumerGroups/$Default/Partitions/0"
	near, far := net.Pipe()
	var peer sync.WaitGroup
	peer.Go(func() { _, _ = io.Copy(io.Discard, far) })
	dials := 0
	w := newConnectionGuard(func(context.Context, string) (net.Conn, error) { dials++; return near, nil }, path, new(intake))
	conn, err := w.connect(t.Context(), azeventhubs.WebSocketConnParams{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte, want error, stands bool) {
		t.Helper()
		if _, err := conn.Write(b); !errors.Is(err, want) {
			t.Errorf("writing %q: %v, want %v", b, err, want)
		}
		if w.isUp() != stands {
			t.Errorf("after %q the link stands: %v", b, !stands)
		}
	}
	write([]byte("AMQP\x00\x01\x00\x00"), nil, false)
	write(frame(attachFrame, "$cbs"), nil, false)
	write(frame(flowFrame, ""), nil, false)
	write(frame(0x14, path), nil, false) // the token for it
	write(frame(attachFrame, path), nil, false)
	write(frame(flowFrame, ""), nil, true)
	write(frame(flowFrame, ""), nil, true)
	write(frame(attachFrame, "$cbs"), nil, true) // another token
	write(frame(0x14, path), nil, true)
	if w.cause() != nil {
		t.Errorf("lost: %v", w.cause())
	}
	write(frame(attachFrame, path), errDetached, true)
	if _, err := w.connect(t.Context(), azeventhubs.WebSocketConnParams{}); !errors.Is(err, errDetached) || dials != 1 {
		t.Errorf("the second of %d connections: %v", dials, err)
	}
	far.Close()
	peer.Wait()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("read from a lost connection")
	}
	if !errors.Is(w.cause(), errDetached) {
		t.Errorf("the first cause is not kept: %v", w.cause())
	}
	near.Close()
}

func TestWindow(t *testing.T) {
	w := newWindow(3000, 16<<20)
	if c := w.credit(); c < 100 || c > 300 {
		t.Errorf("before the first event: credit %d", c)
	}
	for range 30 {
		w.observe(100, 100*1000)
	}
	if c := w.credit(); c != 3000 {
		t.Errorf("1 kB events: credit %d", c)
	}
	w.observe(1, 1<<20)
	if c := w.credit(); c > 16 {
		t.Errorf("after an event of 1 MiB: credit %d", c)
	}
	w.observe(1, 1<<30)
	if c := w.credit(); c != 1 {
		t.Errorf("after an event of 1 GiB: credit %d", c)
	}
}
