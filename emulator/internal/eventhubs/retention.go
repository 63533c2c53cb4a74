package eventhubs

import (
	"errors"
	"fmt"
	"time"
)

const (
	// minRetentionBytes is the largest batch that a client can send.
	minRetentionBytes = 1 << 20
	// A retention pass comes often enough that events go soon after their time,
	// and seldom enough that the syncs it costs don't count.
	minRetentionInterval = 100 * time.Millisecond
	maxRetentionInterval = time.Minute
)

// retention removes old events, from the opening of a broker to its closing.
type retention struct {
	b         *Broker
	age       time.Duration // 0 is for ever
	bytes     int64         // 0 is no limit
	onError   func(error)
	removedTo map[*Partition]int64 // offset up to which all events of a partition are gone
	stop      chan struct{}
	done      chan struct{}
}

func (o *Options) validateRetention() error {
	switch {
	case o.Retention < 0:
		return fmt.Errorf("retention of %s: state how long events are kept, or nothing to keep them for ever", o.Retention)
	case o.RetentionBytes != 0 && o.RetentionBytes < minRetentionBytes:
		return fmt.Errorf("retention of %d bytes: keep at least %d of a partition, or state nothing to keep all", o.RetentionBytes, minRetentionBytes)
	}
	return nil
}

func newRetention(b *Broker, opts *Options) *retention {
	r := &retention{
		b: b, age: opts.Retention, bytes: opts.RetentionBytes, onError: opts.OnRetentionError,
		removedTo: make(map[*Partition]int64), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if r.onError == nil {
		r.onError = func(error) {}
	}
	return r
}

func (r *retention) run() {
	defer close(r.done)
	tick := time.NewTicker(r.interval())
	defer tick.Stop()
	for {
		r.removeOld()
		select {
		case <-tick.C:
		case <-r.stop:
			return
		}
	}
}

func (r *retention) interval() time.Duration {
	pause := maxRetentionInterval
	if r.bytes > 0 {
		pause = time.Second
	}
	if r.age > 0 {
		pause = min(pause, r.age/100)
	}
	return max(pause, minRetentionInterval)
}

// removeOld removes what may go now. What couldn't be removed is tried again with
// the next pass.
func (r *retention) removeOld() {
	live := make(map[*Partition]int64)
	for _, h := range r.b.Hubs() {
		for _, p := range h.partitions {
			live[p] = r.removedTo[p]
			if err := r.trim(p, live); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrDeleted) {
				r.onError(fmt.Errorf("remove old events: %w", err))
			}
		}
	}
	r.removedTo = live // without the partitions of hubs that were deleted
}

func (r *retention) trim(p *Partition, passed map[*Partition]int64) error {
	before := int64(0)
	if r.age > 0 {
		next, err := p.log.SeekTime(r.b.now().Add(-r.age).UnixMilli())
		if err != nil {
			return p.wrapError(err)
		}
		before = next
	}
	info := p.log.Info()
	if r.bytes > 0 && info.End-passed[p] > r.bytes {
		// A tenth more than necessary goes, so that there isn't more to do with
		// every event, but not the newest event.
		offset := info.End - r.bytes + r.bytes/10
		next, err := p.log.SeekOffset(offset)
		if err != nil {
			return p.wrapError(err)
		}
		before, passed[p] = max(before, min(next, info.Last)), offset
	}
	return p.Trim(before)
}

// close ends the removal and waits for a pass in progress.
func (r *retention) close() {
	if r == nil {
		return
	}
	close(r.stop)
	<-r.done
}
