package sender_test

import (
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// lanes is as many as the faulty hub has partitions.
var lanes = &sender.ServiceBusConfig{Lanes: faultyPartitions, MaxBytes: 100_000}

func befallBus(t testing.TB, srv *emulator.ServiceBus, f emulator.Fault) {
	t.Helper()
	f.Hub = queue
	if _, err := srv.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
}

// TestQueueRetry has a few batches to a queue fail each way, in all modes; all
// arrive, and those that do twice are in the report.
func TestQueueRetry(t *testing.T) {
	for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
		for _, ordered := range []bool{false, true} {
			name := string(kind)
			if ordered {
				name += "/ordered"
			}
			t.Run(name, func(t *testing.T) {
				srv := startBus(t, nil)
				cfg := quick()
				cfg.Ordered = ordered
				befallBus(t, srv, emulator.Fault{Kind: kind, On: emulator.OnSend, Times: 3})
				mix := small.sessions()
				report, err := sender.New(openBus(t, srv.ConnectionString(), queue, lanes), cfg).SendAll(within(t), mix.all())
				if err != nil || report.Messages != mix.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, mix.count, err)
				}
				times := busInventory(t, srv, mix)
				agree(t, report, times)
				again := 0
				for _, n := range times {
					again += n - 1
				}
				switch {
				case kind == emulator.FaultLoseAnswer && again == 0:
					t.Error("no messages came again")
				case kind == emulator.FaultServerBusy && (again > 0 || len(report.Repeated) > 0):
					t.Errorf("%d messages came again, %v reported", again, report.Repeated)
				}
				if report.Retries == 0 && kind != emulator.FaultDetach {
					t.Error("no retries reported")
				}
			})
		}
	}
}

// TestQueueGivingUp has a queue fail for good after some batches: the report
// agrees with the queue, and what is left can be sent by it.
func TestQueueGivingUp(t *testing.T) {
	for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
		t.Run(string(kind), func(t *testing.T) {
			srv := startBus(t, nil)
			cfg := quick()
			cfg.Attempts = 3
			b := openBus(t, srv.ConnectionString(), queue, lanes)
			mix := small.sessions()
			report, err := sender.New(b, cfg).SendAll(within(t), func(yield func(sender.Message) bool) {
				for i := range mix.count {
					if i == mix.count/2 {
						befallBus(t, srv, emulator.Fault{Kind: kind, On: emulator.OnSend})
					}
					if !yield(mix.message(i)) {
						return
					}
				}
			})
			if err == nil || report.Messages == 0 {
				t.Fatalf("%d accepted: %v", report.Messages, err)
			}
			srv.Faults().Clear()
			first := busInventory(t, srv, mix)
			agree(t, report, first)
			if busy := kind == emulator.FaultServerBusy; busy != (len(report.Unknown) == 0) {
				t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
			}

			// The rest, by the report: none is lost, and none twice but what may be.
			fate, repeated := fates(t, report)
			if _, err := sender.New(openBus(t, srv.ConnectionString(), queue, lanes), quick()).SendAll(within(t), mix.but(report)); err != nil {
				t.Fatal(err)
			}
			second := busInventory(t, srv, mix)
			for i := range mix.count {
				n := first[i] + second[i]
				if n == 0 || n > 1 && (i >= report.Drawn || !repeated[i] && fate[i] != "unknown") {
					t.Fatalf("message %d is there %d times", i, n)
				}
			}
		})
	}
}
