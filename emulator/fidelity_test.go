package emulator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

// An event without a body is accepted, alone and in a batch.
func TestEventWithoutBody(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	l := sender(t, session(t, srv), "h")
	empty := &amqp.Message{ApplicationProperties: map[string]any{"a": "b"}}
	inner, err := empty.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*amqp.Message{empty, {Format: 0x80013700, Data: [][]byte{inner, inner}}} {
		if err := l.Send(testContext(t), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
	for i, e := range receive(t, pc, 3) {
		if len(e.Body) != 0 || e.Properties["a"] != "b" {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

// An attach to a transaction coordinator is refused; the connection stays.
func TestTransactionCoordinator(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	got := exchange(t, srv.Addr(), slicesOf(wireOpening(), wireFrame(0, 0, 0x12, nil, wireText("tx"), wireUint(0), wireBool(false), wireNull, wireNull,
		wireComposite([]byte{0, 0x53, 0x28}, wireText("me"), 1), wireComposite([]byte{0, 0x53, 0x30}, nil, 0), wireNull, wireNull, wireUint(0)),
		wireAttach("events", "h", 1, false)), 0x16, 0x12)
	wantText(t, errorText(got), "amqp:not-implemented", "transactions are not supported")
}

// A token for a hub that doesn't exist is refused at $cbs, as on Azure, before a link is opened.
func TestTokenForUnknownHub(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "cm9vdA=="}}})
	cbs := newRPC(t, session(t, srv), "$cbs")
	for path, want := range map[string]int32{
		"h": 202, "H/$management": 202, "h/ConsumerGroups/g/Partitions/0": 202, "": 202, "unknown": 404, "unknown/$management": 404, "unknown/Partitions/0": 404,
	} {
		token := signed("root", "cm9vdA==", "sb://localhost/"+path, time.Now().Add(time.Hour))
		status, why, _ := cbs.call("replies", map[string]any{"operation": "put-token", "name": "sb://localhost/" + path, "type": "servicebus.windows.net:sastoken"}, token)
		if status != want || want == 404 && !strings.Contains(why, "could not be found") {
			t.Errorf("a token for %q: %d %s", path, status, why)
		}
	}
}
