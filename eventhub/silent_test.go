package eventhub

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

// A link that stays open and brings nothing more is replaced, and the events come over
// another one.
func TestSilentLinkIsReplaced(t *testing.T) {
	need.RealTime(t)
	receivers(t, func(t *testing.T) {
		b := newBroker(t, nil)
		b.send("0", 0, 1, 0)
		s := b.source(nil)
		var handled, silent, opened atomic.Int64
		handler := func(_ context.Context, _ *sluicetest.Tx, batch sluice.Batch) error {
			handled.Add(int64(len(batch.Events)))
			return nil
		}
		consumer, err := sluice.New(s, new(sluicetest.Leases), sluice.Transactional(new(sluicetest.Store), handler), &sluice.Config{
			SilentAfter: 2 * time.Second, // and not a short lease, which a busy machine would lose
			Observer: driver.ObserverFunc(func(o driver.Observation) {
				var reader *driver.SilentReaderError
				switch {
				case o.Kind == driver.KindFailed && errors.As(o.Err, &reader):
					silent.Add(1)
				case o.Kind == driver.KindOpened && o.Partition == "0":
					opened.Add(1)
				}
			}),
		})
		b.ok("new consumer", err)
		ran := make(chan error, 1)
		go func() { ran <- consumer.Run(b.now) }()
		b.eventually("the first event is handled", func() bool { return handled.Load() == 1 })

		// The next delivery on the link waits for an hour. The connection itself lives, and so do
		// requests for the partition's end.
		_, err = b.Faults().Add(emulator.Fault{Kind: emulator.FaultDelay, On: emulator.OnReceive, Hub: hubName, Partition: "0", Times: 1, Delay: time.Hour})
		b.ok("add fault", err)
		b.send("0", 1, 10, 0)
		b.eventually("all events are handled", func() bool { return handled.Load() == 11 })
		if silent.Load() == 0 || opened.Load() < 2 {
			t.Errorf("reported %d times, opened %d times, want once and twice", silent.Load(), opened.Load())
		}
		b.ok("stop", consumer.Stop(b.now))
		b.ok("run", <-ran)
	})
}
