package sender_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

const faultyPartitions = 4

// small is some thirty batches of 100,000 bytes.
var small = traffic{count: 3000, keys: 300, size: func(r *rand.Rand) int { return r.IntN(2000) }}

func faulty(t testing.TB) *emulator.Server {
	return start(t, faultyPartitions, &emulator.Config{MaxMessageBytes: 100_000})
}

func befall(t testing.TB, srv *emulator.Server, faults ...emulator.Fault) {
	t.Helper()
	for _, f := range faults {
		if _, err := srv.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRetry has a few batches fail each way, in all modes; all arrive, and those
// that do twice are in the report.
func TestRetry(t *testing.T) {
	for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
		for _, ordered := range []bool{false, true} {
			name := string(kind)
			if ordered {
				name += "/ordered"
			}
			t.Run(name, func(t *testing.T) {
				srv := faulty(t)
				cfg := quick()
				cfg.Ordered = ordered
				befall(t, srv, emulator.Fault{Kind: kind, On: emulator.OnSend, Hub: hub, Partition: "1", Times: 2},
					emulator.Fault{Kind: kind, On: emulator.OnSend, Hub: hub, Partition: "2", Times: 1})
				report, err := sender.New(open(t, srv, nil), cfg).SendAll(within(t), small.all())
				if err != nil || report.Messages != small.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, small.count, err)
				}
				times := inventory(t, srv, small, faultyPartitions)
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

// TestGivingUp has a partition fail for good after some batches: the report
// agrees with the hub, and what is left can be sent by it.
func TestGivingUp(t *testing.T) {
	for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
		t.Run(string(kind), func(t *testing.T) {
			srv := faulty(t)
			cfg := quick()
			cfg.Attempts = 3
			hub2 := open(t, srv, nil)
			all := func(yield func(sender.Message) bool) {
				for i := range small.count {
					if i == small.count/2 {
						befall(t, srv, emulator.Fault{Kind: kind, On: emulator.OnSend, Hub: hub, Partition: "2"})
					}
					if !yield(small.message(i)) {
						return
					}
				}
			}
			report, err := sender.New(hub2, cfg).SendAll(within(t), all)
			if err == nil {
				t.Fatal("no error")
			}
			times := inventory(t, srv, small, faultyPartitions)
			agree(t, report, times)
			if busy := kind == emulator.FaultServerBusy; busy && (len(report.Unsent) == 0 || len(report.Unknown) > 0) || !busy && len(report.Unknown) == 0 {
				t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
			}

			// The rest, by the report: none is lost, and none twice but what may be.
			srv.Faults().Clear()
			fate, repeated := fates(t, report)
			if _, err := sender.New(open(t, srv, nil), quick()).SendAll(within(t), small.but(report)); err != nil {
				t.Fatal(err)
			}
			times = inventory(t, srv, small, faultyPartitions)
			for i := range small.count {
				if n := times[i]; n == 0 || n > 1 && (i >= report.Drawn || !repeated[i] && fate[i] != "unknown") {
					t.Fatalf("message %d is there %d times", i, n)
				}
			}
		})
	}
}

// TestNoRepeats ends with what may be there, not sent again.
func TestNoRepeats(t *testing.T) {
	srv := faulty(t)
	cfg := quick()
	cfg.NoRepeats = true
	befall(t, srv, emulator.Fault{Kind: emulator.FaultLoseAnswer, On: emulator.OnSend, Hub: hub, Partition: "3", Times: 1})
	report, err := sender.New(open(t, srv, nil), cfg).SendAll(within(t), small.all())
	if err == nil || len(report.Unknown) == 0 || len(report.Repeated) > 0 {
		t.Fatalf("unknown %v, repeated %v: %v", report.Unknown, report.Repeated, err)
	}
	times := inventory(t, srv, small, faultyPartitions)
	agree(t, report, times)
	for i, n := range times {
		if n != 1 {
			t.Errorf("message %d is there %d times", i, n)
		}
	}
}

// TestDroppedConnections cuts all connections again and again.
func TestDroppedConnections(t *testing.T) {
	srv := faulty(t)
	all := func(yield func(sender.Message) bool) {
		for i := range small.count {
			if i%500 == 250 {
				srv.DropConnections()
			}
			if !yield(small.message(i)) {
				return
			}
		}
	}
	report, err := sender.New(open(t, srv, nil), quick()).SendAll(within(t), all)
	if err != nil || report.Messages != small.count {
		t.Fatalf("%d of %d accepted: %v", report.Messages, small.count, err)
	}
	agree(t, report, inventory(t, srv, small, faultyPartitions))
}

// TestServerGone kills the server half-way and starts it again: the report
// agrees with what is on its disk.
func TestServerGone(t *testing.T) {
	dir := t.TempDir()
	srv, err := emulator.Start([]emulator.Hub{{Name: hub, Partitions: faultyPartitions}}, &emulator.Config{Dir: dir, MaxMessageBytes: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.Attempts = 3
	all := func(yield func(sender.Message) bool) {
		for i := range small.count {
			if i == small.count/2 {
				if err := srv.Close(); err != nil {
					t.Errorf("close the emulator: %v", err)
				}
			}
			if !yield(small.message(i)) {
				return
			}
		}
	}
	report, err := sender.New(open(t, srv, nil), cfg).SendAll(within(t), all)
	if err == nil || report.Messages == 0 || report.Messages >= small.count {
		t.Fatalf("%d accepted: %v", report.Messages, err)
	}
	again := start(t, faultyPartitions, &emulator.Config{Dir: dir})
	agree(t, report, inventory(t, again, small, faultyPartitions))
}

// TestCancel ends the sending half-way, with batches on their way that are
// slow, or so slow that their answer isn't waited for.
func TestCancel(t *testing.T) {
	for name, parting := range map[string]time.Duration{"answered": time.Minute, "given up": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			srv := faulty(t)
			cfg := quick()
			cfg.Parting = parting
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			all := func(yield func(sender.Message) bool) {
				for i := range small.count {
					switch i {
					case small.count / 3:
						befall(t, srv, emulator.Fault{Kind: emulator.FaultDelay, On: emulator.OnSend, Delay: 200 * time.Millisecond})
					case small.count / 2:
						cancel()
					}
					if !yield(small.message(i)) {
						return
					}
				}
			}
			report, err := sender.New(open(t, srv, nil), cfg).SendAll(ctx, all)
			if !errors.Is(err, context.Canceled) || report.Drawn != small.count/2 {
				t.Errorf("%d drawn: %v", report.Drawn, err)
			}
			if answered := parting == time.Minute; answered != (len(report.Unknown) == 0) || len(report.Unsent) == 0 {
				t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
			}
			srv.Faults().Clear()
			agree(t, report, inventory(t, srv, small, faultyPartitions))
		})
	}
}

// TestBusyLinks has links refused for a while before anything is sent.
func TestBusyLinks(t *testing.T) {
	srv := faulty(t)
	befall(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnManage, Times: 2},
		emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnAttach, Times: 3})
	report, err := sender.New(open(t, srv, nil), quick()).SendAll(within(t), small.all())
	if err != nil || len(report.Accepted) != 1 || report.Accepted[0] != (sluice.Range{First: 0, Last: small.count - 1}) || report.Repeated != nil {
		t.Errorf("accepted %v: %v", report.Accepted, err)
	}
}
