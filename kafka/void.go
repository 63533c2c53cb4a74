package kafka

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where compaction has removed the last records of a partition, a broker returns nothing at a
// number, though its log ends later, and would do so for ever. Then the numbers up to the end are
// passed. A broker with tiered storage also returns nothing if it could not get data from the remote
// store in time; so the numbers are passed only if the number is among those that it stores itself.

// earliestLocal stands for the first number that a broker stores itself (KIP-405).
const earliestLocal = -4

// voidPause keeps a broker that returns nothing from being asked all the time.
const voidPause = 200 * time.Millisecond

// endIn returns the number after the last that a reader may see, by an answer to a fetch.
func (s *Source) endIn(p *kmsg.FetchResponseTopicPartition) int64 {
	if s.cfg.ReadUncommitted {
		return p.HighWatermark
	}
	return p.LastStableOffset
}

// confirmVoid is called if the leader had nothing at the number to fetch next, though its log ended
// at end.
func (r *reader) confirmVoid(end int64) {
	if pause(r.life, voidPause) != nil {
		return
	}
	local, err := r.localStart()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atVoid = false
	if err == nil && local <= r.next {
		// Of the records before the end only the leader is known, which need not have written them.
		r.past = history{epoch: r.epoch, from: -1}
		r.next = end
		r.chunks = append(r.chunks, &chunk{void: end - 1, past: r.past})
		r.notify()
	}
	if r.fetcher != nil {
		r.fetcher.signal()
	}
}

// localStart asks the leader of the last fetch for the first number that it stores itself. Brokers
// that do not know the question have no tiered storage.
func (r *reader) localStart() (int64, error) {
	ctx, cancel := context.WithTimeout(r.life, r.source.client.timeout)
	defer cancel()
	l, err := r.source.leader(ctx, r.partition, false)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	l.epoch = r.epoch // another leader refuses it
	r.mu.Unlock()
	local, err := r.source.listIn(ctx, l, readUncommitted, earliestLocal)
	if unsupported(err) {
		return driver.Origin.Sequence, nil
	}
	return local.offset, err
}
