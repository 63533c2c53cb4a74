package sender_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/storetest"
)

// blockable is a transport that can be blocked.
type blockable struct {
	sender.Transport
	mu    sync.Mutex
	gate  chan struct{} // nil: open
	sends atomic.Int64
}

func (g *blockable) Send(ctx context.Context, batch sender.Batch) (sender.Outcome, error) {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate != nil {
		<-gate
	}
	defer g.sends.Add(1)
	return g.Transport.Send(ctx, batch)
}

func (g *blockable) block() (release func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = gate
	return func() {
		close(gate)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.gate = nil
	}
}

// newSink makes a sink that the test closes.
func newSink(t testing.TB, transport sender.Transport, cfg *sender.SinkConfig) *sender.Sink {
	t.Helper()
	s := sender.NewSink(transport, cfg)
	t.Cleanup(func() {
		if err := s.Close(testContext(t)); err != nil {
			t.Errorf("close the sink: %v", err)
		}
	})
	return s
}

// conformanceMessage is a record of the conformance suite: some have keys, some
// don't.
func conformanceMessage(i int) *sender.Message {
	m := &sender.Message{MessageID: strconv.Itoa(i), Body: []byte("body")}
	if i%3 > 0 {
		m.Key = fmt.Sprint("key-", i%97)
	}
	return m
}

// testConformance runs the conformance suite of sinks with batches of up to
// 20,000 bytes. ids calls its argument for each stored message.
func testConformance(t *testing.T, make func(t testing.TB) (transport sender.Transport, faults *emulator.Faults, ids func(func(id string)))) {
	storetest.TestSink(t, func(t testing.TB) storetest.SinkHarness[*sender.Message] {
		transport, faults, ids := make(t)
		g := &blockable{Transport: transport}
		there, at := map[string]bool{}, int64(0)
		var refused atomic.Int64
		refused.Store(-1)
		return storetest.SinkHarness[*sender.Message]{
			Sink: newSink(t, g, nil),
			Record: func(i int) *sender.Message {
				m := conformanceMessage(i)
				if int64(i) == refused.Load() {
					m.Body = bytes.Repeat([]byte("x"), 20_000)
				}
				return m
			},
			Written: func(i int) bool {
				if sends := g.sends.Load(); at != sends {
					ids(func(id string) { there[id] = true })
					at = sends
				}
				return there[strconv.Itoa(i)]
			},
			Block:  g.block,
			Refuse: func(i int) { refused.Store(int64(i)) },
			Break: func() (repair func()) {
				if _, err := faults.Add(emulator.Fault{Kind: emulator.FaultDrop, On: emulator.OnSend}); err != nil {
					t.Fatal(err)
				}
				return faults.Clear
			},
		}
	})
}

func TestSinkConformance(t *testing.T) {
	t.Run("hub", func(t *testing.T) {
		testConformance(t, func(t testing.TB) (sender.Transport, *emulator.Faults, func(func(string))) {
			srv := start(t, 2, &emulator.Config{MaxMessageBytes: 20_000, AsAzure: withoutBusy()})
			return open(t, srv, nil), srv.Faults(), func(tell func(string)) {
				for p := range 2 {
					eachStored(t, srv, p, func(e *azeventhubs.ReceivedEventData) { tell(*e.MessageID) })
				}
			}
		})
	})
	t.Run("queue", func(t *testing.T) {
		testConformance(t, func(t testing.TB) (sender.Transport, *emulator.Faults, func(func(string))) {
			srv := startBus(t, &emulator.ServiceBusConfig{AsAzure: withoutBusy()})
			return openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{MaxBytes: 20_000}), srv.Faults(), func(tell func(string)) {
				eachPeeked(t, srv, func(m *azservicebus.ReceivedMessage) { tell(m.MessageID) })
			}
		})
	})
}

// rejectingHub rejects the batches that have a certain message, or gives all
// batches the same outcome.
type rejectingHub struct {
	sizeUnawareHub
	refuses string         // the id of a message
	outcome sender.Outcome // of every batch; 0: by the batch
}

func (h *rejectingHub) Send(ctx context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	switch {
	case h.outcome != 0:
		return h.outcome, errors.New("this outcome for all")
	case slices.ContainsFunc(messages, func(m sender.Message) bool { return m.MessageID == h.refuses }):
		return sender.OutcomeRejected, errors.New("not that one")
	}
	return h.sizeUnawareHub.Send(ctx, partition, messages)
}

// submitAll submits messages and waits for their results.
func submitAll(s *sender.Sink, messages []*sender.Message) []error {
	var all sync.WaitGroup
	errs := make([]error, len(messages))
	all.Add(len(messages))
	for i, m := range messages {
		s.Submit(context.Background(), m, func(r driver.WriteResult) {
			errs[i] = r.Err
			all.Done()
		})
	}
	all.Wait()
	return errs
}

// TestSinkOutcomes checks which result each outcome becomes.
func TestSinkOutcomes(t *testing.T) {
	retry := func(err error) bool {
		_, ok := errors.AsType[*driver.RetryError](err)
		return ok
	}
	outage := func(err error) bool { return errors.Is(err, sluice.ErrOutage) }
	for outcome, is := range map[sender.Outcome]func(error) bool{
		sender.OutcomeAccepted: func(err error) bool { return err == nil },
		sender.OutcomeBusy:     retry,
		sender.OutcomeUnknown:  outage,
		sender.OutcomeDenied:   outage,
		sender.OutcomeRejected: func(err error) bool { return errors.Is(err, sluice.ErrRejected) },
		sender.OutcomeTooLarge: func(err error) bool {
			return errors.Is(err, sluice.ErrRejected) && errors.Is(err, sender.ErrTooLarge)
		},
	} {
		h := &rejectingHub{sizeUnawareHub: sizeUnawareHub{limit: 1 << 20}, outcome: outcome}
		if outcome == sender.OutcomeAccepted {
			h.outcome = 0
		}
		e, err := sender.NewEstimator(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range submitAll(newSink(t, e, nil), []*sender.Message{conformanceMessage(0), conformanceMessage(1), conformanceMessage(2)}) {
			if !is(err) {
				t.Errorf("outcome %d: %v", outcome, err)
			}
		}
	}
}

// TestSinkRejectsOneMessage has the service reject the batches that have a
// certain message: only that message is rejected. Other batches are above the
// service's limit: their messages are sent in smaller ones.
func TestSinkRejectsOneMessage(t *testing.T) {
	h := &rejectingHub{sizeUnawareHub: sizeUnawareHub{limit: 5_000, header: 100}, refuses: "101"}
	e, err := sender.NewEstimator(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]*sender.Message, 500)
	for i := range messages {
		messages[i] = conformanceMessage(i)
	}
	for i, err := range submitAll(newSink(t, e, nil), messages) {
		if errors.Is(err, sluice.ErrRejected) != (i == 101) || err != nil && i != 101 {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if h.refusals == 0 {
		t.Error("no batch was too large: this shows nothing")
	}
	times := map[string]int{}
	for _, list := range h.stored {
		for _, m := range list {
			times[m.MessageID]++
		}
	}
	for i := range messages {
		if n := times[strconv.Itoa(i)]; n != 1 && i != 101 || n != 0 && i == 101 {
			t.Errorf("message %d is there %d times", i, n)
		}
	}
}

// TestSinkBatches checks that messages submitted together are sent together, once
// a batch is full or a message has waited, and each message once.
func TestSinkBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &sizeUnawareHub{limit: 1 << 20}
		e, err := sender.NewEstimator(h, &sender.EstimatorConfig{MaxMessages: 100})
		if err != nil {
			t.Fatal(err)
		}
		s := newSink(t, e, &sender.SinkConfig{FlushAfter: time.Second})
		began := time.Now()
		submit := func(n int, after time.Duration) {
			t.Helper()
			messages := make([]*sender.Message, n)
			for i := range messages {
				messages[i] = &sender.Message{Key: "k", MessageID: strconv.Itoa(i)}
			}
			for _, err := range submitAll(s, messages) {
				if err != nil {
					t.Error(err)
				}
			}
			if d := time.Since(began); d != after {
				t.Errorf("%d messages took until %v, want %v", n, d, after)
			}
		}
		submit(30, time.Second)     // one batch, once the first has waited
		submit(130, 2*time.Second)  // a batch of 100, which shows how many fill one; the others wait as long
		submit(100, 2*time.Second)  // a full batch doesn't wait
		submit(1, 3*time.Second)    // waits for others
		submit(230, 4*time.Second)  // two at once
		if h.batches != 1+2+1+1+3 { // and 30 that wait
			t.Errorf("%d batches", h.batches)
		}
	})
}

// unreachableHub can't list its partitions while err is set.
type unreachableHub struct {
	sizeUnawareHub
	err error
}

func (h *unreachableHub) Partitions(ctx context.Context) ([]string, error) {
	if h.err != nil {
		return nil, h.err
	}
	return h.sizeUnawareHub.Partitions(ctx)
}

// TestSinkLooksUpPartitions has the service unreachable at first: the results are
// outages, and the sink works once it is reachable.
func TestSinkLooksUpPartitions(t *testing.T) {
	h := &unreachableHub{sizeUnawareHub: sizeUnawareHub{limit: 1 << 20}, err: errors.New("away")}
	e, err := sender.NewEstimator(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newSink(t, e, nil)
	for _, err := range submitAll(s, []*sender.Message{conformanceMessage(0), conformanceMessage(1)}) {
		if !errors.Is(err, sluice.ErrOutage) {
			t.Errorf("while the service is away: %v", err)
		}
	}
	h.err = nil
	for _, err := range submitAll(s, []*sender.Message{conformanceMessage(0), conformanceMessage(1)}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestSinkClose checks that Close sends what is queued, or completes it when its
// context ends, and that the sink takes no more messages.
func TestSinkClose(t *testing.T) {
	for name, stuck := range map[string]bool{"sends": false, "gives up": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &blockedHub{sizeUnawareHub: sizeUnawareHub{limit: 1 << 20}, answer: make(chan struct{})}
				if !stuck {
					close(h.answer)
				}
				e, err := sender.NewEstimator(h, &sender.EstimatorConfig{MaxMessages: 2})
				if err != nil {
					t.Fatal(err)
				}
				s := sender.NewSink(e, &sender.SinkConfig{FlushAfter: time.Hour})
				var sent, closed, other atomic.Int64
				for range 5 {
					s.Submit(t.Context(), &sender.Message{Key: "k"}, func(r driver.WriteResult) {
						switch {
						case r.Err == nil:
							sent.Add(1)
						case errors.Is(r.Err, sender.ErrClosed) && errors.Is(r.Err, sluice.ErrOutage):
							closed.Add(1)
						default:
							other.Add(1)
						}
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if stuck {
					time.AfterFunc(time.Hour, func() { close(h.answer) }) // it ignores the context of Send
				}
				if err := s.Close(ctx); stuck != errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("close: %v", err)
				}
				if stuck && (sent.Load() != 2 || closed.Load() != 3) || !stuck && sent.Load() != 5 || other.Load() > 0 {
					t.Errorf("%d sent, %d met a closed sink, %d something else", sent.Load(), closed.Load(), other.Load())
				}
				if err := submitAll(s, []*sender.Message{{}})[0]; !errors.Is(err, sender.ErrClosed) {
					t.Errorf("submitted to a closed sink: %v", err)
				}
			})
		})
	}
}
