package eventhub

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
)

// The errors of detaches are found however the connection's bytes are cut.
func TestDetaches(t *testing.T) {
	frame := func(performative byte, body string) []byte {
		b := append([]byte{0, 0, 0, 0, 2, 0, 0, 0, 0, 0x53, performative}, body...)
		binary.BigEndian.PutUint32(b, uint32(len(b)))
		return b
	}
	short := func(text string) string { return "\xa1" + string(rune(len(text))) + text }
	remote := func(encoding, condition, description string) string {
		return "\xc0\x7f\x03\x43\x41\x00\x53\x1d" + encoding + "\xa3" + string(rune(len(condition))) + condition + description
	}
	long := strings.Repeat("x", 300)
	stream := slices.Concat(
		[]byte("AMQP\x03\x01\x00\x00"), []byte("AMQP\x00\x01\x00\x00"),
		frame(attachFrame, "path"), []byte{0, 0, 0, 8, 2, 0, 0, 0},
		frame(detachFrame, remote("\xc0\x20\x02", "amqp:not-found", short("no hub"))),
		frame(0x14, long+string(frame(detachFrame, remote("\xc0\x20\x02", "an:event", short("its body"))))),
		frame(detachFrame, "\xc0\x03\x02\x43\x41"), // without an error
		frame(detachFrame, remote("\xd0\x00\x00\x01\x50\x00\x00\x00\x02", "amqp:link:stolen", "\xb1\x00\x00\x01\x2c"+long)),
		frame(detachFrame, remote("\xc0\x20\x02", "amqp:internal-error", "\x40")),
		frame(detachFrame, remote("\xc0\x20\x02", "amqp:not-found", "\xa1\x7fcut off")),
		frame(detachFrame, strings.Repeat("y", 2*maxDetach)+remote("\xc0\x20\x02", "too:long", "\x40")),
		frame(detachFrame, "\x00\x53\x1d\x45"),
		frame(detachFrame, remote("\xc0\x20\x02", "last", "\x40")),
		[]byte{0, 0, 0, 3}, frame(detachFrame, remote("\xc0\x20\x02", "no:amqp", "\x40")),
	)
	want := []amqp.Error{{Condition: "amqp:not-found", Description: "no hub"}, {Condition: "amqp:link:stolen", Description: long},
		{Condition: "amqp:internal-error"}, {Condition: "amqp:not-found"}, {Condition: "last"}}
	for _, piece := range []int{1, 2, 7, 11, 64, len(stream)} {
		var d detaches
		var got []amqp.Error
		for b := range slices.Chunk(stream, piece) {
			d.scan(b, func(err *amqp.Error) { got = append(got, *err) })
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in pieces of %d: got %v, want %v", piece, got, want)
		}
		if len(d.frame) > maxDetach || cap(d.frame) > 2*maxDetach {
			t.Errorf("in pieces of %d: %d bytes are kept", piece, cap(d.frame))
		}
	}
}
