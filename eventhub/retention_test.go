package eventhub

import (
	"runtime"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

// keptByEvent is how many bytes an event that is in use keeps in memory at most, with those that
// share memory with it. The engine's limits count the event alone.
const keptByEvent = 64 << 10

// One slow event among many does not keep much of the others in memory.
func TestSlowEventKeepsLittle(t *testing.T) {
	const n, every = 10_000, 100
	for _, size := range []int{100, 1000, 4000} {
		b := newBroker(t, nil)
		b.send("0", 0, n, size)
		for _, receiver := range []Receiver{SDKReceiver, OwnReceiver} {
			r := b.open(b.sourceWith(receiver, nil), "0", driver.Origin, 1)
			var slow []*driver.Event
			for read := 0; read < n; {
				events, err := r.Read(b.now, min(1000, n-read))
				b.ok("read", err)
				for _, e := range events {
					if e.Sequence%every == 0 {
						slow = append(slow, e)
					}
				}
				read += len(events)
			}
			b.ok("close", r.Close(b.now))
			_, kept := live(t), live(t) // twice: what pools hold is free only then
			runtime.KeepAlive(slow)
			slow = nil
			kept = (kept - live(t)) / (n / every)
			t.Logf("%s: one event of %d bytes keeps %d", receiver, size, kept)
			if kept < int64(size) || kept > keptByEvent {
				t.Errorf("%s: one event of %d bytes keeps %d, want at most %d", receiver, size, kept, keptByEvent)
			}
		}
	}
}
