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

// sizeUnawareHub refuses batches above a size that it doesn't report.
type sizeUnawareHub struct {
	limit, header int // bytes; the header is added to the lengths of a message's parts

	mu       sync.Mutex
	rand     *rand.Rand // nil: no faults; otherwise one batch in four fails
	refusals int64
	batches  int64
	stored   map[string][]sender.Message
}

func (h *sizeUnawareHub) Partitions(context.Context) ([]string, error) {
	return []string{"a", "b", "c", "d"}, nil
}

func (h *sizeUnawareHub) size(messages []sender.Message) (n int) {
	for _, m := range messages {
		n += h.header + len(m.Body) + len(m.Key) + len(m.MessageID) + len(m.ContentType) + 20*len(m.Properties)
	}
	return n
}

func (h *sizeUnawareHub) Send(_ context.Context, partition string, messages []sender.Message) (sender.Outcome, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fault := 9
	if h.rand != nil {
		fault = h.rand.IntN(12)
	}
	switch {
	case fault == 0:
		return sender.OutcomeBusy, errors.New("busy")
	case fault == 1:
		return sender.OutcomeUnknown, errors.New("batch lost")
	case h.size(messages) > h.limit:
		h.refusals++
		return sender.OutcomeTooLarge, errors.New("too large")
	}
	h.batches++
	if h.stored == nil {
		h.stored = map[string][]sender.Message{}
	}
	h.stored[partition] = append(h.stored[partition], messages...)
	if fault == 2 {
		return sender.OutcomeUnknown, errors.New("answer lost")
	}
	return sender.OutcomeAccepted, nil
}

// inventory returns how often each message is stored. It checks the order of keys.
func (h *sizeUnawareHub) inventory(t *testing.T, f traffic) map[int64]int {
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

// TestEstimator learns hidden limits and headers. The number of refusals is
// bounded, and close to zero once the estimates are right.
func TestEstimator(t *testing.T) {
	mix := traffic{count: 10_000, keys: 500, size: func(r *rand.Rand) int { return r.IntN(1500) }}
	for name, h := range map[string]*sizeUnawareHub{
		"as assumed":    {limit: 1 << 20, header: 10},
		"lower limit":   {limit: 100_000, header: 10},
		"larger header": {limit: 262_000, header: 400},
		"both":          {limit: 64_000, header: 250},
	} {
		for _, ordered := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", ordered"}[ordered], func(t *testing.T) {
				h, mix := &sizeUnawareHub{limit: h.limit, header: h.header}, mix
				if ordered {
					mix.keys = 0
				}
				e, err := sender.NewEstimator(h, nil)
				if err != nil {
					t.Fatal(err)
				}
				s := sender.New(e, &sender.Config{Ordered: ordered})
				report, err := s.SendAll(testContext(t), mix.all())
				if err != nil || report.Messages != mix.count {
					t.Fatalf("%d of %d accepted: %v", report.Messages, mix.count, err)
				}
				checkReport(t, report, h.inventory(t, mix))
				if report.TooLarge != h.refusals || report.Batches != h.batches {
					t.Errorf("%+v; the service refused %d and took %d batches", report.Stats, h.refusals, h.batches)
				}
				limit, header := e.Learned()
				lessons := int64(math.Ceil(math.Log(262_000/float64(limit))/0.051) + math.Ceil(math.Log(float64(header)/54)/math.Log(1.25)))
				stale := int64(8) // four partitions, one batch in flight and one that fills for each
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
				if report, err = s.SendAll(testContext(t), mix.all()); err != nil {
					t.Fatal(err)
				}
				checkReport(t, report, h.inventory(t, mix))
				if again := h.refusals - before; again > lessons/4+1 {
					t.Errorf("%d refusals once the lesson was learned", again)
				}
			})
		}
	}
}

// TestEstimatorFillsBatches: once the lesson is learned, batches have what the service takes, to 2
// %.
func TestEstimatorFillsBatches(t *testing.T) {
	for _, c := range []struct{ limit, header int }{{262_000, 54}, {262_000, 100}, {262_000, 300}, {200_000, 54}, {100_000, 300}} {
		h := &sizeUnawareHub{limit: c.limit, header: c.header}
		e, err := sender.NewEstimator(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, mix := sender.New(e, &sender.Config{Ordered: true}), traffic{count: 10_000, size: fixed(700)}
		var report sender.Report
		var before int64
		for range 2 {
			before, h.stored = h.refusals, nil
			if report, err = s.SendAll(testContext(t), mix.all()); err != nil {
				t.Fatal(err)
			}
		}
		total := 0
		for _, messages := range h.stored {
			total += h.size(messages)
		}
		least := float64(total) / float64(c.limit)
		if most := int64(math.Ceil(least * 1.02)); report.Batches > most || h.refusals > before {
			t.Errorf("limit %d, header %d: %d batches and %d refusals, where %.1f batches would be full: want at most %d", c.limit, c.header, report.Batches, h.refusals-before, least, most)
		}
	}
}

// TestEstimatorLargeMessages sends messages that are above the assumed limit.
// Only those that the service refuses are rejected.
func TestEstimatorLargeMessages(t *testing.T) {
	h := &sizeUnawareHub{limit: 500_000, header: 20}
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
	report, err := sender.New(e, nil).SendAll(testContext(t), mix.all())
	var want []sender.IndexRange
	for i := range mix.count {
		if m := mix.message(i); h.size([]sender.Message{m}) > h.limit {
			want = append(want, sender.IndexRange{First: i, Last: i})
		}
	}
	outcome, _ := outcomes(t, report)
	refused := 0
	for _, f := range outcome {
		if f == "refused" {
			refused++
		}
	}
	if len(want) < 5 || refused != len(want) || report.Messages != mix.count-int64(len(want)) {
		t.Errorf("%d refused, want %d; %d accepted", refused, len(want), report.Messages)
	}
	for _, r := range want {
		if outcome[r.First] != "refused" {
			t.Errorf("message %d: %s", r.First, outcome[r.First])
		}
	}
	var first *sender.RejectedError
	if !errors.As(err, &first) || !errors.Is(first, sender.ErrTooLarge) || outcome[first.Index] != "refused" || first.Size < 500_000 {
		t.Errorf("error: %v", err)
	}
	if text := err.Error(); strings.Count(text, "\n") != 16 || !strings.Contains(text, fmt.Sprintf("and %d messages more", refused-16)) {
		t.Errorf("error for %d messages: %v", refused, err)
	}
	checkReport(t, report, h.inventory(t, mix))
}

// TestEstimatorFaults makes batches fail at random, also those that are packed
// again, and then sends what is left.
func TestEstimatorFaults(t *testing.T) {
	mix := traffic{count: 2000, keys: 100, size: func(r *rand.Rand) int { return r.IntN(1500) }}
	ended := 0
	for seed := range uint64(40) {
		h := &sizeUnawareHub{limit: 50_000, header: 100, rand: rand.New(rand.NewPCG(seed, 2))}
		e, err := sender.NewEstimator(h, nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg := fastRetries()
		cfg.RetryMin, cfg.RetryMax = 1, 1
		cfg.Attempts = 2 + int(seed%3)
		cfg.NoDuplicates = seed%5 == 0
		cfg.Ordered = seed%7 == 0
		report, err := sender.New(e, cfg).SendAll(testContext(t), mix.all())
		checkReport(t, report, h.inventory(t, mix))
		if err == nil {
			if report.Messages != mix.count {
				t.Errorf("seed %d: %d accepted, and no error", seed, report.Messages)
			}
			continue
		}
		// The report says what is left to send, and the order of each key is kept.
		ended++
		h.rand = nil
		rest := mix.notAccepted(report)
		if _, err := sender.New(e, nil).SendAll(testContext(t), rest); err != nil {
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
