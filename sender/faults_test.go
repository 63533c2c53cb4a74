package sender_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

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

// place is an embedded hub or queue, and messages that go there.
type place struct {
	traffic
	srv interface {
		Faults() *emulator.Faults
		DropConnections() int
	}
	name, partition string // for faults of all of it, or of a part
	open            func() sender.Transport
	inventory       func() map[int64]int
}

func (p *place) befall(t testing.TB, f emulator.Fault) {
	t.Helper()
	f.Hub = p.name
	if _, err := p.srv.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
}

// places are made anew for each test. A directory keeps what is there.
var places = map[string]func(t testing.TB, dir string) *place{
	"hub": func(t testing.TB, dir string) *place {
		srv := start(t, faultyPartitions, &emulator.Config{MaxMessageBytes: 100_000, Dir: dir})
		return &place{
			traffic: small, srv: srv, name: hub, partition: "2",
			open:      func() sender.Transport { return open(t, srv, nil) },
			inventory: func() map[int64]int { return inventory(t, srv, small, faultyPartitions) },
		}
	},
	"queue": func(t testing.TB, dir string) *place {
		srv, mix := startBus(t, &emulator.ServiceBusConfig{Dir: dir}), small.sessions()
		return &place{
			traffic: mix, srv: srv, name: queue,
			open: func() sender.Transport {
				return openBus(t, srv.ConnectionString(), queue, lanes)
			},
			inventory: func() map[int64]int { return busInventory(t, srv, mix) },
		}
	},
}

// lanes is as many as the faulty hub has partitions.
var lanes = &sender.ServiceBusConfig{Writers: faultyPartitions, MaxBytes: 100_000}

// everyFault runs a test for each place and each kind of fault of a send.
func everyFault(t *testing.T, test func(t *testing.T, p *place, kind emulator.FaultKind)) {
	for name, make := range places {
		for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
			t.Run(name+"/"+string(kind), func(t *testing.T) { test(t, make(t, ""), kind) })
		}
	}
}

// TestRetry has a few batches fail each way, in all modes; all arrive, and those
// that do twice are in the report.
func TestRetry(t *testing.T) {
	for mode, ordered := range map[string]bool{"by key": false, "ordered": true} {
		t.Run(mode, func(t *testing.T) {
			everyFault(t, func(t *testing.T, p *place, kind emulator.FaultKind) {
				cfg := quick()
				cfg.Ordered = ordered
				p.befall(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Partition: p.partition, Times: 2})
				p.befall(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Times: 1})
				report, err := sender.New(p.open(), cfg).SendAll(within(t), p.all())
				if err != nil || report.Messages != p.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, p.count, err)
				}
				times := p.inventory()
				agree(t, report, times)
				again := 0
				for _, n := range times {
					again += n - 1
				}
				switch {
				case kind == emulator.FaultLoseAnswer && again == 0:
					t.Error("no messages came again")
				case kind == emulator.FaultServerBusy && (again > 0 || len(report.PossibleDuplicates) > 0):
					t.Errorf("%d messages came again, %v reported", again, report.PossibleDuplicates)
				}
				if report.Retries == 0 && kind != emulator.FaultDetach {
					t.Error("no retries reported")
				}
			})
		})
	}
}

// TestGivingUp has a partition, or the queue, fail for good after some batches:
// the report agrees with what is there, and what is left can be sent by it.
func TestGivingUp(t *testing.T) {
	everyFault(t, func(t *testing.T, p *place, kind emulator.FaultKind) {
		cfg := quick()
		cfg.Attempts = 3
		report, err := sender.New(p.open(), cfg).SendAll(within(t), func(yield func(sender.Message) bool) {
			for i := range p.count {
				if i == p.count/2 {
					p.befall(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Partition: p.partition})
				}
				if !yield(p.message(i)) {
					return
				}
			}
		})
		if err == nil {
			t.Fatal("no error")
		}
		agree(t, report, p.inventory())
		if busy := kind == emulator.FaultServerBusy; busy && (len(report.Unsent) == 0 || len(report.Unknown) > 0) || !busy && len(report.Unknown) == 0 {
			t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
		}

		// The rest, by the report: none is lost, and none twice but what may be.
		p.srv.Faults().Clear()
		fate, repeated := fates(t, report)
		if _, err := sender.New(p.open(), quick()).SendAll(within(t), p.but(report)); err != nil {
			t.Fatal(err)
		}
		times := p.inventory()
		for i := range p.count {
			if n := times[i]; n == 0 || n > 1 && (i >= report.Taken || !repeated[i] && fate[i] != "unknown") {
				t.Fatalf("message %d is there %d times", i, n)
			}
		}
	})
}

// TestNoRepeats ends with what may be there, not sent again.
func TestNoRepeats(t *testing.T) {
	srv := faulty(t)
	cfg := quick()
	cfg.NoDuplicates = true
	befall(t, srv, emulator.Fault{Kind: emulator.FaultLoseAnswer, On: emulator.OnSend, Hub: hub, Partition: "3", Times: 1})
	report, err := sender.New(open(t, srv, nil), cfg).SendAll(within(t), small.all())
	if err == nil || len(report.Unknown) == 0 || len(report.PossibleDuplicates) > 0 {
		t.Fatalf("unknown %v, repeated %v: %v", report.Unknown, report.PossibleDuplicates, err)
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
	for name, make := range places {
		t.Run(name, func(t *testing.T) {
			p := make(t, "")
			all := func(yield func(sender.Message) bool) {
				for i := range p.count {
					if i%500 == 250 {
						p.srv.DropConnections()
					}
					if !yield(p.message(i)) {
						return
					}
				}
			}
			report, err := sender.New(p.open(), quick()).SendAll(within(t), all)
			if err != nil || report.Messages != p.count {
				t.Fatalf("%d of %d accepted: %v", report.Messages, p.count, err)
			}
			agree(t, report, p.inventory())
		})
	}
}

// TestCancel ends the sending half-way, with batches on their way that are
// slow, or so slow that their answer isn't waited for.
func TestCancel(t *testing.T) {
	for name, drainTimeout := range map[string]time.Duration{"answered": time.Minute, "given up": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			srv := faulty(t)
			cfg := quick()
			cfg.DrainTimeout = drainTimeout
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
			if !errors.Is(err, context.Canceled) || report.Taken != small.count/2 {
				t.Errorf("%d drawn: %v", report.Taken, err)
			}
			if answered := drainTimeout == time.Minute; answered != (len(report.Unknown) == 0) || len(report.Unsent) == 0 {
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
	if err != nil || len(report.Accepted) != 1 || report.Accepted[0] != (sender.IndexRange{First: 0, Last: small.count - 1}) || report.PossibleDuplicates != nil {
		t.Errorf("accepted %v: %v", report.Accepted, err)
	}
}
