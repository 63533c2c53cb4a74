package sender_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/sender"
)

// blindHub refuses batches by a size that it keeps to itself.
type blindHub struct {
	limit, header int // bytes; the header comes on top of what a message's parts have

	mu       sync.Mutex
	rand     *rand.Rand // if there, a batch in four goes wrong
	refusals int64
	batches  int64
	stored   map[string][]sender.Message
}

func (h *blindHub) Partitions(context.Context) ([]string, error) {
	return []string{"a", "b", "c", "d"}, nil
}

func (h *blindHub) size(messages []sender.Message) (n int) {
	for _, m := range messages {
		n += h.header + len(m.Body) + len(m.Key) + len(m.MessageID) + len(m.ContentType) + 20*len(m.Properties)
	}
	return n
}

func (h *blindHub) Send(_ context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fate := 9
	if h.rand != nil {
		fate = h.rand.IntN(12)
	}
	switch {
	case fate == 0:
		return sender.OutcomeBusy, errors.New("busy")
	case fate == 1:
		return sender.OutcomeUnknown, errors.New("lost on the way")
	case h.size(messages) > h.limit:
		h.refusals++
		return sender.OutcomeTooLarge, errors.New("too large")
	}
	h.batches++
	if h.stored == nil {
		h.stored = map[string][]sender.Message{}
	}
	h.stored[partition] = append(h.stored[partition], messages...)
	if fate == 2 {
		return sender.OutcomeUnknown, errors.New("answer lost")
	}
	return sender.OutcomeAccepted, nil
}

// inventory is how often each message is there. It checks the order of keys.
func (h *blindHub) inventory(t *testing.T, f traffic) map[int64]int {
	t.Helper()
	times, last := map[int64]int{}, map[string]int64{}
	for _, messages := range h.stored {
		for _, m := range messages {
			i, err := strconv.ParseInt(m.MessageID, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if want := f.message(i); m.Key != want.Key || !bytes.Equal(m.Body, want.Body) {
				t.Fatalf("message %d arrived changed", i)
			}
			ordered := m.Key != "" || len(h.stored) == 1
			if times[i]++; times[i] == 1 && i < last[m.Key] && ordered {
				t.Fatalf("message %d of key %s came after %d", i, m.Key, last[m.Key])
			}
			last[m.Key] = max(last[m.Key], i)
		}
	}
	return times
}

// TestEstimator learns hidden limits and headers, with refusals counted and
// bounded, and none once the lesson is learned.
func TestEstimator(t *testing.T) {
	mix := traffic{count: 10_000, keys: 500, size: func(r *rand.Rand) int { return r.IntN(1500) }}
	for name, h := range map[string]*blindHub{
		"as assumed":    {limit: 1 << 20, header: 10},
		"lower limit":   {limit: 100_000, header: 10},
		"larger header": {limit: 262_000, header: 400},
		"both":          {limit: 64_000, header: 250},
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", ordered"}[ordered], func(t *testing.T) {
				h, mix := &blindHub{limit: h.limit, header: h.header}, mix
				if ordered {
					mix.keys = 0
				}
				e, err := sender.NewEstimator(h, nil)
				if err != nil {
					t.Fatal(err)
				}
				s := sender.New(e, &sender.Config{Ordered: ordered})
				report, err := s.SendAll(within(t), mix.all())
				if err != nil || report.Messages != mix.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, mix.count, err)
				}
				agree(t, report, h.inventory(t, mix))
				if report.TooLarge != h.refusals || report.Batches != h.batches {
					t.Errorf("%+v; the service refused %d and took %d batches", report.Stats, h.refusals, h.batches)
				}
				limit, header := e.Learned()
				lessons := int64(math.Ceil(math.Log(262_000/float64(limit))/0.051) + math.Ceil(math.Log(float64(header)/54)/math.Log(1.25)))
				stale := int64(8) // four partitions, one batch on its way and one that fills for each
				if ordered {
					stale = 1
				}
				t.Logf("%d batches, %d refusals; learned a limit of %d and a header of %d", report.Batches, report.TooLarge, limit, header)
				if most := lessons * (1 + stale); report.TooLarge > most {
					t.Errorf("%d refusals for %d lessons, at most %d", report.TooLarge, lessons, most)
				}
				if lessons == 0 && name != "as assumed" {
					t.Error("nothing was learned")
				}
				before := h.refusals
				h.stored = nil
				if report, err = s.SendAll(within(t), mix.all()); err != nil {
					t.Fatal(err)
				}
				agree(t, report, h.inventory(t, mix))
				if again := h.refusals - before; again > lessons/4+1 {
					t.Errorf("%d refusals once the lesson was learned", again)
				}
			})
		}
	}
}

// TestEstimatorLargeMessages sends single messages that are above the assumed
// limit, of which some are too large: those alone are refused.
func TestEstimatorLargeMessages(t *testing.T) {
	h := &blindHub{limit: 500_000, header: 20}
	e, err := sender.NewEstimator(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	mix := traffic{count: 500, keys: 20, size: func(r *rand.Rand) int {
		if r.IntN(10) == 0 {
			return 300_000 + r.IntN(400_000)
		}
		return 1000
	}}
	report, err := sender.New(e, nil).SendAll(within(t), mix.all())
	var want []sender.IndexRange
	for i := range mix.count {
		if m := mix.message(i); h.size([]sender.Message{m}) > h.limit {
			want = append(want, sender.IndexRange{First: i, Last: i})
		}
	}
	fate, _ := fates(t, report)
	refused := 0
	for _, f := range fate {
		if f == "refused" {
			refused++
		}
	}
	if len(want) < 5 || refused != len(want) || report.Messages != mix.count-int64(len(want)) {
		t.Errorf("%d refused, want %d; %d accepted", refused, len(want), report.Messages)
	}
	for _, r := range want {
		if fate[r.First] != "refused" {
			t.Errorf("message %d: %s", r.First, fate[r.First])
		}
	}
	var first *sender.RejectedError
	if !errors.As(err, &first) || !errors.Is(first, sender.ErrTooLarge) || fate[first.Index] != "refused" || first.Size < 500_000 {
		t.Errorf("error: %v", err)
	}
	if text := err.Error(); strings.Count(text, "\n") != 16 || !strings.Contains(text, fmt.Sprintf("and %d messages more", refused-16)) {
		t.Errorf("error for %d messages: %v", refused, err)
	}
	agree(t, report, h.inventory(t, mix))
}

// TestEstimatorFaults has batches fail at random, some of them in pieces, and
// sends the rest.
func TestEstimatorFaults(t *testing.T) {
	mix := traffic{count: 2000, keys: 100, size: func(r *rand.Rand) int { return r.IntN(1500) }}
	ended := 0
	for seed := range uint64(40) {
		h := &blindHub{limit: 50_000, header: 100, rand: rand.New(rand.NewPCG(seed, 2))}
		e, err := sender.NewEstimator(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg := quick()
		cfg.RetryMin, cfg.RetryMax = 1, 1
		cfg.Attempts = 2 + int(seed%3)
		cfg.NoDuplicates = seed%5 == 0
		cfg.Ordered = seed%7 == 0
		report, err := sender.New(e, cfg).SendAll(within(t), mix.all())
		agree(t, report, h.inventory(t, mix))
		if err == nil {
			if report.Messages != mix.count {
				t.Errorf("seed %d: %d accepted, and no error", seed, report.Messages)
			}
			continue
		}
		// What is left can be sent by the report, and no key's order suffers.
		ended++
		h.rand = nil
		rest := mix.but(report)
		if _, err := sender.New(e, nil).SendAll(within(t), rest); err != nil {
			t.Fatal(err)
		}
		if times := h.inventory(t, mix); int64(len(times)) != mix.count {
			t.Errorf("seed %d: %d messages after all", seed, len(times))
		}
	}
	if ended < 5 || ended == 40 {
		t.Errorf("%d of 40 ended with an error", ended)
	}
}
