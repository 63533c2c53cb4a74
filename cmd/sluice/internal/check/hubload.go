package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// sending is what was sent to a partition.
type sending struct {
	partition string
	bodies    [][]byte
	took      time.Duration // until the acknowledgement
}

// body is that of an event that the checks send.
func (h *hub) body(kind string, n int) []byte {
	return fmt.Appendf(nil, `{"sluice-check":%q,"kind":%q,"n":%d}`, h.opts.ID, kind, n)
}

// readSent reads the events of this run and kind that were enqueued since a time, until want of
// them came.
func (h *hub) readSent(ctx context.Context, partition, kind string, since time.Time, want int) (list []event, err error) {
	mark := fmt.Appendf(nil, `{"sluice-check":%q,"kind":%q,`, h.opts.ID, kind)
	// The broker's clock may be behind this machine's.
	start := azeventhubs.StartPosition{EnqueuedTime: ptr(since.Add(-time.Minute))}
	const within = 30 * time.Second
	ended := false
	for began := time.Now(); len(list) < want; {
		switch waited := time.Since(began); {
		case ended && waited > h.comesWithin:
			return list, nil // the partition holds no more
		case waited > within:
			return nil, fmt.Errorf("%d of %d events found within %v, between those of other senders: run the command again when the hub has less traffic", len(list), want, within)
		}
		events, err := h.raw.read(ctx, partition, start, max(2*want, 5000), h.quiet)
		if err != nil {
			return nil, err
		}
		events = fresh(events, start)
		for _, e := range events {
			if bytes.HasPrefix(e.body, mark) {
				list = append(list, e)
			}
		}
		if ended = len(events) == 0; !ended {
			start = startAfter(events[len(events)-1].sequence)
		}
	}
	return list, nil
}

func ptr[T any](v T) *T { return &v }

// checkSend sends to some partitions by their id.
func (h *hub) checkSend(ctx context.Context) Finding {
	if h.opts.Send == 0 {
		return skipped("not asked for: pass --send N to send N events to the hub")
	}
	partitions := h.partitions[:min(len(h.partitions), samplePartitions)]
	// A part of the events is for checkKey.
	each := max(1, (h.opts.Send-h.keyed())/len(partitions))
	began := time.Now()
	for i, p := range partitions {
		s := sending{partition: p}
		for n := range each {
			s.bodies = append(s.bodies, h.body("send", i*each+n))
		}
		before, err := h.raw.runtime(ctx, p)
		if err != nil {
			return failed("asking for runtime information", err)
		}
		asked := time.Now()
		if err := h.raw.send(ctx, p, "", s.bodies); err != nil {
			return failed("sending to partition "+p, err)
		}
		acked := time.Now()
		s.took = acked.Sub(asked)
		h.delay = max(h.delay, h.awaitShown(ctx, p, max(before.last, -1)+int64(each), acked))
		h.sent = append(h.sent, s)
	}
	h.sampled = false
	var slowest time.Duration
	for i := range h.sent {
		s := &h.sent[i]
		slowest = max(slowest, s.took)
		got, err := h.readSent(ctx, s.partition, "send", began, each)
		if err != nil {
			return failed("reading what was sent to partition "+s.partition, err)
		}
		bodies := make([][]byte, len(got))
		for i, e := range got {
			bodies[i] = e.body
		}
		if !slices.EqualFunc(bodies, s.bodies, bytes.Equal) {
			return differed("partition %s: %d events were sent and acknowledged, and %d came back, or in another order", s.partition, len(s.bodies), len(got))
		}
	}
	return held("%d events were sent and came back in order", each*len(partitions)).with(Measure{"slowest acknowledgement of a batch", milliseconds(slowest), "ms"})
}

// awaitShown measures how long after the acknowledgement runtime information was asked for that did
// not show an event. The time that an answer takes does not count. It gives up after staleFor.
func (h *hub) awaitShown(ctx context.Context, partition string, sequence int64, acked time.Time) (stale time.Duration) {
	for ctx.Err() == nil {
		asked := time.Since(acked)
		info, err := h.raw.runtime(ctx, partition)
		if err == nil && info.last >= sequence {
			break
		}
		if err == nil {
			stale = asked
		}
		if asked >= h.staleFor {
			break
		}
		_ = pause(ctx, 100*time.Millisecond) // the loop looks at ctx
	}
	return stale
}

// keyed is how many of the events have a key.
func (h *hub) keyed() int { return min(8, h.opts.Send/2) }

func (h *hub) checkKey(ctx context.Context) Finding {
	if h.keyed() == 0 {
		return skipped("not asked for: pass --send 2 or more")
	}
	began := time.Now()
	want := map[string][]string{} // partition → bodies
	for n := range h.keyed() {
		key := fmt.Sprintf("check-%s-%d", h.opts.ID, n)
		body := h.body("key", n)
		if err := h.raw.send(ctx, "", key, [][]byte{body}); err != nil {
			return failed("sending with a partition key", err)
		}
		p := fmt.Sprint(partitionkey.EventHubsPartition(key, len(h.partitions)))
		want[p] = append(want[p], string(body))
	}
	for p, bodies := range want {
		got, err := h.readSent(ctx, p, "key", began, len(bodies))
		if err != nil {
			return failed("reading what was sent by key", err)
		}
		have := make([]string, len(got))
		for i, e := range got {
			have[i] = string(e.body)
		}
		slices.Sort(have)
		slices.Sort(bodies)
		if !slices.Equal(have, bodies) {
			return differed("partition %s: %d events should be there by their keys, and %d are", p, len(bodies), len(have)).next("check whether partitions were added to the hub")
		}
	}
	return held("%d keys are in the partitions that were computed", h.keyed())
}

// checkThrottle asks for runtime information more often than Azure's quota of 50 requests a second
// and namespace.
func (h *hub) checkThrottle(ctx context.Context) Finding {
	if !h.opts.Load {
		return skipped("not asked for: pass --load")
	}
	const requests = 120
	raw := h.raw
	if p, ok := raw.(patientHub); ok {
		raw = p.rawHub
	}
	errs := make([]error, requests)
	var asking sync.WaitGroup
	began := time.Now()
	for i := range requests {
		asking.Go(func() {
			limited, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			_, errs[i] = raw.runtime(limited, h.partitions[i%len(h.partitions)])
		})
	}
	asking.Wait()
	took := time.Since(began)
	refused, words := 0, ""
	for _, err := range errs {
		switch {
		case err == nil:
		case throttled(err):
			refused++
			words = cmp.Or(words, oneLine(err))
		case errors.Is(err, context.DeadlineExceeded):
			return differed("a request over the quota got no answer for 20 s")
		default:
			return differed("a request over the quota was refused in other words than server-busy: %s", oneLine(err))
		}
	}
	var err error
	for range 10 {
		if err = pause(ctx, time.Second); err != nil {
			break
		}
		if _, err = h.raw.runtime(ctx, h.partitions[0]); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return differed("ten seconds after the requests over the quota the hub still refuses: %s", oneLine(err))
	case refused == 0:
		return held("%d requests within %v, none refused", requests, took.Round(time.Millisecond))
	}
	return held("%d requests within %v, %d refused: %s", requests, took.Round(time.Millisecond), refused, words)
}

// throttled reports whether the broker refused a request because of a quota. The SDK returns the
// answer of a management request as text.
func throttled(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "server-busy") || strings.Contains(text, "status code 503") || strings.Contains(text, "status code 429") || strings.Contains(text, "busy")
}
