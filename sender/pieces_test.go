package sender_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sender"
)

// narrowHub takes fewer messages at a time than its batches hold, and none that
// is named "huge".
type narrowHub struct {
	takes int
	taken func(id string) // called for each, when it has it

	mu     sync.Mutex
	sends  int
	stored []string
}

type narrowBatch struct{ ids []string }

func (b *narrowBatch) Len() int   { return len(b.ids) }
func (b *narrowBatch) Bytes() int { return len(b.ids) }
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

// splittingHub knows pieces.
type splittingHub struct{ *narrowHub }

func (h splittingHub) Split(batch sender.Batch) (pieces []sender.Batch) {
	all := batch.(*narrowBatch).ids
	for ids := range slices.Chunk(all, max(len(all)/3, 1)) {
		pieces = append(pieces, &narrowBatch{ids})
	}
	return pieces
}

// A batch that turns out to be too large goes in pieces, whether or not the
// transport can make them: each message arrives once, in order, but for one that
// is too large by itself.
func TestSinkDividesWhatIsTooLarge(t *testing.T) {
	for name, splits := range map[string]bool{"halves": false, "the transport's pieces": true} {
		for _, takes := range []int{1, 2, 3, 7} {
			t.Run(name+", "+strconv.Itoa(takes)+" at a time", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &narrowHub{takes: takes}
					var way sender.Transport = h
					if splits {
						way = splittingHub{h}
					}
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
					for i, err := range submitAll(newSink(t, way, nil), messages) {
						if (i == 11) != errors.Is(err, sender.ErrTooLarge) || (i == 11) != errors.Is(err, sluice.ErrRejected) || i != 11 && err != nil {
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

// A message whose context ends while earlier pieces of its batch are sent isn't
// sent any more.
func TestSinkDividesForThoseWhoWait(t *testing.T) {
	for name, splits := range map[string]bool{"halves": false, "the transport's pieces": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				h := &narrowHub{takes: 3, taken: func(id string) {
					if id == "0" {
						cancel()
					}
				}}
				var way sender.Transport = h
				if splits {
					way = splittingHub{h}
				}
				s := newSink(t, way, nil)
				results := make([]error, 12)
				var done sync.WaitGroup
				for i := range results {
					of := t.Context()
					if i%4 == 3 {
						of = ctx
					}
					done.Add(1)
					s.Submit(of, &sender.Message{Key: "k", MessageID: strconv.Itoa(i)}, func(r sluice.Result) {
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
		})
	}
}
