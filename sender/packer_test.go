package sender_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sender"
)

// narrowHub takes fewer messages at a time than its batches hold, and none that
// is named "huge".
type narrowHub struct {
	takes int
	taken func(id string) // called for each stored message

	mu     sync.Mutex
	sends  int
	stored []string
}

type narrowBatch struct{ ids []string }

func (b *narrowBatch) Len() int                          { return len(b.ids) }
func (b *narrowBatch) Bytes() int                        { return len(b.ids) }
func (b *narrowBatch) Size(*sender.Message) (int, error) { return 1, nil }
func (b *narrowBatch) Add(m *sender.Message) error {
	b.ids = append(b.ids, m.MessageID)
	return nil
}

func (h *narrowHub) Partitions(context.Context) ([]string, error) { return []string{"0"}, nil }
func (h *narrowHub) NewBatch(context.Context, string) (sender.Batch, error) {
	return &narrowBatch{}, nil
}

func (h *narrowHub) Send(_ context.Context, b sender.Batch) (sender.Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sends++
	ids := b.(*narrowBatch).ids
	if len(ids) > h.takes || slices.Contains(ids, "huge") {
		return sender.OutcomeTooLarge, errors.New("too large")
	}
	for _, id := range ids {
		h.stored = append(h.stored, id)
		if h.taken != nil {
			h.taken(id)
		}
	}
	return sender.OutcomeAccepted, nil
}

// paths are the two ways to send messages over a transport. Each returns a
// function that sends messages and returns the error of each.
var paths = map[string]func(t *testing.T, transport sender.Transport) func([]*sender.Message) []error{
	"SendAll": func(t *testing.T, transport sender.Transport) func([]*sender.Message) []error {
		s := sender.New(transport, nil)
		return func(messages []*sender.Message) []error {
			report, err := s.SendAll(testContext(t), func(yield func(sender.Message) bool) {
				for _, m := range messages {
					if !yield(*m) {
						return
					}
				}
			})
			errs := make([]error, len(messages))
			for _, list := range [][]sender.IndexRange{report.Rejected, report.Unsent, report.Unknown} {
				for _, r := range list {
					for i := r.First; i <= r.Last; i++ {
						errs[i] = err
					}
				}
			}
			return errs
		}
	},
	"sink": func(t *testing.T, transport sender.Transport) func([]*sender.Message) []error {
		s := newSink(t, transport, nil)
		return func(messages []*sender.Message) []error { return submitAll(s, messages) }
	},
}

// sendLog records how many messages each batch has, and whether it was refused.
type sendLog struct {
	sender.Transport
	mu    sync.Mutex
	sends []string
}

func (l *sendLog) Send(ctx context.Context, batch sender.Batch) (sender.Outcome, error) {
	outcome, err := l.Transport.Send(ctx, batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sends = append(l.sends, fmt.Sprint(batch.Len(), map[bool]string{true: " refused"}[outcome == sender.OutcomeTooLarge]))
	return outcome, err
}

// TestTooLargeOnBothPaths has batches refused as too large: SendAll and the sink
// send the same batches, and know the limit from then on.
func TestTooLargeOnBothPaths(t *testing.T) {
	for name, c := range map[string]struct {
		transport     func() sender.Transport
		first, second []string // nil: only the paths are compared
	}{
		"known sizes": {
			func() sender.Transport { return &narrowHub{takes: 7} },
			[]string{"20 refused", "19 refused", "18 refused", "17 refused", "16 refused", "15 refused", "14 refused", "13 refused",
				"12 refused", "11 refused", "10 refused", "9 refused", "8 refused", "7", "7", "6"},
			[]string{"7", "7", "6"},
		},
		"estimated sizes": {func() sender.Transport {
			e, err := sender.NewEstimator(&sizeUnawareHub{limit: 2000, header: 100}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			traces := map[string][2][]string{}
			for path, open := range paths {
				synctest.Test(t, func(t *testing.T) {
					log := &sendLog{Transport: c.transport()}
					send := open(t, log)
					var trace [2][]string
					for round := range trace {
						var messages []*sender.Message
						for i := range 20 {
							messages = append(messages, &sender.Message{Key: "k", MessageID: strconv.Itoa(10 + i), Body: make([]byte, 100)})
						}
						for i, err := range send(messages) {
							if err != nil {
								t.Fatalf("%s: message %d: %v", path, i, err)
							}
						}
						trace[round], log.sends = log.sends, nil
					}
					traces[path] = trace
				})
			}
			got := traces["SendAll"]
			if other := traces["sink"]; !slices.Equal(got[0], other[0]) || !slices.Equal(got[1], other[1]) {
				t.Errorf("SendAll sent %v, the sink %v", got, other)
			}
			if c.first != nil && (!slices.Equal(got[0], c.first) || !slices.Equal(got[1], c.second)) {
				t.Errorf("sent %v, want %v and %v", got, c.first, c.second)
			}
			refused := func(s string) bool { return strings.HasSuffix(s, "refused") }
			if !slices.ContainsFunc(got[0], refused) || slices.ContainsFunc(got[1], refused) {
				t.Errorf("refused: %v, and once the limit is known %v", got[0], got[1])
			}
		})
	}
}

// TestTooLargeMessage has batches that are too large, and a message that is too
// large by itself: each other message is stored once, in order.
func TestTooLargeMessage(t *testing.T) {
	for path, open := range paths {
		for _, takes := range []int{1, 2, 3, 7} {
			t.Run(path+", "+strconv.Itoa(takes)+" at a time", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &narrowHub{takes: takes}
					var messages []*sender.Message
					var want []string
					for i := range 20 {
						id := strconv.Itoa(i)
						if i == 11 {
							id = "huge"
						} else {
							want = append(want, id)
						}
						messages = append(messages, &sender.Message{Key: "k", MessageID: id})
					}
					for i, err := range open(t, h)(messages) {
						rejected := errors.Is(err, sluice.ErrRejected)
						if path == "SendAll" {
							_, rejected = errors.AsType[*sender.RejectedError](err)
						}
						if (i == 11) != errors.Is(err, sender.ErrTooLarge) || (i == 11) != rejected || i != 11 && err != nil {
							t.Errorf("message %d: %v", i, err)
						}
					}
					if !slices.Equal(h.stored, want) || h.sends > 2*len(messages) {
						t.Errorf("stored %v after %d sends", h.stored, h.sends)
					}
				})
			})
		}
	}
}

// TestSinkEndedWhileTooLarge ends the context of a message while those before it
// in a refused batch are sent again: the message isn't sent any more.
func TestSinkEndedWhileTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &narrowHub{takes: 3, taken: func(id string) {
			if id == "0" {
				cancel()
			}
		}}
		s := newSink(t, h, nil)
		results := make([]error, 12)
		var done sync.WaitGroup
		for i := range results {
			of := t.Context()
			if i%4 == 3 {
				of = ctx
			}
			done.Add(1)
			s.Submit(of, &sender.Message{Key: "k", MessageID: strconv.Itoa(i)}, func(r driver.WriteResult) {
				results[i] = r.Err
				done.Done()
			})
		}
		done.Wait()
		for i, err := range results {
			if ended := i%4 == 3; ended != errors.Is(err, context.Canceled) || !ended && err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if want := []string{"0", "1", "2", "4", "5", "6", "8", "9", "10"}; !slices.Equal(h.stored, want) {
			t.Errorf("stored %v, want %v", h.stored, want)
		}
	})
}

// TestTooLargeQueue has batches of up to 1 GiB refused by the link of a queue: all
// messages are stored once, and the limit is known from then on.
func TestTooLargeQueue(t *testing.T) {
	for path, open := range paths {
		t.Run(path, func(t *testing.T) {
			srv := startBus(t, nil)
			log := &sendLog{Transport: openBus(t, srv.ConnectionString(), queue, &sender.ServiceBusConfig{Writers: 1, MaxBytes: 1 << 30})}
			send := open(t, log)
			mix := traffic{count: 800, keys: 20, size: fixed(2000)}.sessions()
			for half := range int64(2) {
				var messages []*sender.Message
				for i := half * 400; i < (half+1)*400; i++ {
					m := mix.message(i)
					messages = append(messages, &m)
				}
				log.sends = nil
				for i, err := range send(messages) {
					if err != nil {
						t.Fatalf("message %d: %v", i, err)
					}
				}
				refused := slices.ContainsFunc(log.sends, func(s string) bool { return strings.HasSuffix(s, "refused") })
				if first := half == 0; refused != first {
					t.Fatalf("batches: %v", log.sends)
				}
			}
			for i, n := range busInventory(t, srv, mix) {
				if n != 1 {
					t.Errorf("message %d is stored %d times", i, n)
				}
			}
		})
	}
}
