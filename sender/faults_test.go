package sender_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

const faultyPartitions = 4

// small fills some thirty batches of 100,000 bytes.
var small = traffic{count: 3000, keys: 300, size: func(r *rand.Rand) int { return r.IntN(2000) }}

func startFaulty(t testing.TB) *emulator.Server {
	return start(t, faultyPartitions, &emulator.Config{MaxMessageBytes: 100_000})
}

func addFaults(t testing.TB, srv *emulator.Server, faults ...emulator.Fault) {
	t.Helper()
	for _, f := range faults {
		if _, err := srv.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
}

// target is an embedded hub or queue, and the messages to send there.
type target struct {
	traffic
	srv interface {
		Faults() *emulator.Faults
		DropConnections() int
	}
	name, partition string // for faults of the whole target, or of one partition
	open            func() sender.Transport
	inventory       func() map[int64]int
}

func (p *target) addFault(t testing.TB, f emulator.Fault) {
	t.Helper()
	f.Hub = p.name
	if _, err := p.srv.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
}

// targets makes a new target for each test. The data stays in the directory.
var targets = map[string]func(t testing.TB, dir string) *target{
	"hub": func(t testing.TB, dir string) *target {
		srv := start(t, faultyPartitions, &emulator.Config{MaxMessageBytes: 100_000, Dir: dir})
		return &target{
			traffic: small, srv: srv, name: hub, partition: "2",
			open:      func() sender.Transport { return open(t, srv, nil) },
			inventory: func() map[int64]int { return inventory(t, srv, small, faultyPartitions) },
		}
	},
	"queue": func(t testing.TB, dir string) *target {
		srv, mix := startBus(t, &emulator.ServiceBusConfig{Dir: dir}), small.sessions()
		return &target{
			traffic: mix, srv: srv, name: queue,
			open: func() sender.Transport {
				return openBus(t, srv.ConnectionString(), queue, writers)
			},
			inventory: func() map[int64]int { return busInventory(t, srv, mix) },
		}
	},
}

// writers has as many writers as the hub has partitions.
var writers = &sender.ServiceBusConfig{Writers: faultyPartitions, MaxBytes: 100_000}

// everyFault runs a test for each target and each kind of fault of a send.
func everyFault(t *testing.T, test func(t *testing.T, p *target, kind emulator.FaultKind)) {
	for name, make := range targets {
		for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultLoseAnswer} {
			t.Run(name+"/"+string(kind), func(t *testing.T) { test(t, make(t, ""), kind) })
		}
	}
}

// TestRetry makes a few batches fail in each way, in all modes. All messages are
// stored, and the report has those that are stored twice.
func TestRetry(t *testing.T) {
	for mode, ordered := range map[string]bool{"by key": false, "ordered": true} {
		t.Run(mode, func(t *testing.T) {
			everyFault(t, func(t *testing.T, p *target, kind emulator.FaultKind) {
				cfg := fastRetries()
				cfg.Ordered = ordered
				p.addFault(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Partition: p.partition, Times: 2})
				p.addFault(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Times: 1})
				report, err := sender.New(p.open(), cfg).SendAll(testContext(t), p.all())
				if err != nil || report.Messages != p.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, p.count, err)
				}
				times := p.inventory()
				checkReport(t, report, times)
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

// TestGivingUp makes a partition, or the queue, fail for good after some batches.
// The report agrees with what is stored, and says what is left to send.
func TestGivingUp(t *testing.T) {
	everyFault(t, func(t *testing.T, p *target, kind emulator.FaultKind) {
		cfg := fastRetries()
		cfg.Attempts = 3
		report, err := sender.New(p.open(), cfg).SendAll(testContext(t), func(yield func(sender.Message) bool) {
			for i := range p.count {
				if i == p.count/2 {
					p.addFault(t, emulator.Fault{Kind: kind, On: emulator.OnSend, Partition: p.partition})
				}
				if !yield(p.message(i)) {
					return
				}
			}
		})
		if err == nil {
			t.Fatal("no error")
		}
		checkReport(t, report, p.inventory())
		if busy := kind == emulator.FaultServerBusy; busy && (len(report.Unsent) == 0 || len(report.Unknown) > 0) || !busy && len(report.Unknown) == 0 {
			t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
		}

		// Sends the rest by the report: none is lost, and only possible duplicates are stored
		// twice.
		p.srv.Faults().Clear()
		outcome, duplicate := outcomes(t, report)
		if _, err := sender.New(p.open(), fastRetries()).SendAll(testContext(t), p.notAccepted(report)); err != nil {
			t.Fatal(err)
		}
		times := p.inventory()
		for i := range p.count {
			if n := times[i]; n == 0 || n > 1 && (i >= report.Taken || !duplicate[i] && outcome[i] != "unknown") {
				t.Fatalf("message %d is there %d times", i, n)
			}
		}
	})
}

// TestNoDuplicates ends with messages that may be stored, and doesn't send them
// again.
func TestNoDuplicates(t *testing.T) {
	srv := startFaulty(t)
	cfg := fastRetries()
	cfg.NoDuplicates = true
	addFaults(t, srv, emulator.Fault{Kind: emulator.FaultLoseAnswer, On: emulator.OnSend, Hub: hub, Partition: "3", Times: 1})
	report, err := sender.New(open(t, srv, nil), cfg).SendAll(testContext(t), small.all())
	if err == nil || len(report.Unknown) == 0 || len(report.PossibleDuplicates) > 0 {
		t.Fatalf("unknown %v, duplicate %v: %v", report.Unknown, report.PossibleDuplicates, err)
	}
	times := inventory(t, srv, small, faultyPartitions)
	checkReport(t, report, times)
	for i, n := range times {
		if n != 1 {
			t.Errorf("message %d is there %d times", i, n)
		}
	}
}

// TestDroppedConnections drops all connections again and again.
func TestDroppedConnections(t *testing.T) {
	for name, make := range targets {
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
			report, err := sender.New(p.open(), fastRetries()).SendAll(testContext(t), all)
			if err != nil || report.Messages != p.count {
				t.Fatalf("%d of %d accepted: %v", report.Messages, p.count, err)
			}
			checkReport(t, report, p.inventory())
		})
	}
}

// TestCancel cancels while batches in flight are slow: they get their answers in
// time, or not.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct{ delay, drainTimeout time.Duration }{
		"answered": {200 * time.Millisecond, time.Minute},
		"given up": {30 * time.Second, time.Millisecond}, // before the attempt times out
	} {
		t.Run(name, func(t *testing.T) {
			srv := startFaulty(t)
			cfg := fastRetries()
			cfg.DrainTimeout = c.drainTimeout
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			delayed := func(f emulator.FaultState) bool { return f.Hits > 0 }
			var taken int64
			all := func(yield func(sender.Message) bool) {
				for i := range small.count {
					switch i {
					case small.count / 3:
						addFaults(t, srv, emulator.Fault{Kind: emulator.FaultDelay, On: emulator.OnSend, Delay: c.delay})
						go func() {
							for !slices.ContainsFunc(srv.Faults().List(), delayed) && ctx.Err() == nil {
								<-time.After(time.Millisecond)
							}
							cancel()
						}()
					case small.count / 2:
						<-ctx.Done()
					}
					if !yield(small.message(i)) {
						return
					}
					taken++
				}
			}
			report, err := sender.New(open(t, srv, nil), cfg).SendAll(ctx, all)
			if !errors.Is(err, context.Canceled) || report.Taken < taken || report.Taken > taken+1 {
				t.Errorf("%d taken, want %d, or one more: %v", report.Taken, taken, err)
			}
			if answered := name == "answered"; answered != (len(report.Unknown) == 0) || len(report.Unsent) == 0 {
				t.Errorf("unsent %v, unknown %v", report.Unsent, report.Unknown)
			}
			srv.Faults().Clear()
			checkReport(t, report, inventory(t, srv, small, faultyPartitions))
		})
	}
}

// TestBusyLinks has the service refuse links for a while before anything is sent.
func TestBusyLinks(t *testing.T) {
	srv := startFaulty(t)
	addFaults(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnManage, Times: 2},
		emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnAttach, Times: 3})
	report, err := sender.New(open(t, srv, nil), fastRetries()).SendAll(testContext(t), small.all())
	if err != nil || len(report.Accepted) != 1 || report.Accepted[0] != (sender.IndexRange{First: 0, Last: small.count - 1}) || report.PossibleDuplicates != nil {
		t.Errorf("accepted %v: %v", report.Accepted, err)
	}
}
