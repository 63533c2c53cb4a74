package eventhub

import (
	"testing"
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

func TestWindow(t *testing.T) {
	w := newWindow(3000, 16<<20)
	if c := w.credit(); c < 100 || c > 300 {
		t.Errorf("before the first event: credit %d", c)
	}
	for range 30 {
		w.learn(100, 100*1000)
	}
	if c := w.credit(); c != 3000 {
		t.Errorf("1 kB events: credit %d", c)
	}
	w.learn(1, 1<<20)
	if c := w.credit(); c > 16 {
		t.Errorf("after an event of 1 MiB: credit %d", c)
	}
	w.learn(1, 1<<30)
	if c := w.credit(); c != 1 {
		t.Errorf("after an event of 1 GiB: credit %d", c)
	}
}
