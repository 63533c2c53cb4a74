package eventhubs

import (
	"errors"
	"fmt"
	"time"
)

const (
	// minRetentionBytes is the largest batch that a client can send.
	minRetentionBytes = 1 << 20
	// The interval is short enough that events are removed soon after they expire,
	// and long enough that the fsyncs of the removal don't matter.
	minRetentionInterval = 100 * time.Millisecond
	maxRetentionInterval = time.Minute
)

// retention removes old events while a broker is open.
type retention struct {
	b         *Broker
	age       time.Duration // 0: no limit
	bytes     int64         // 0: no limit
	onError   func(error)
	removedTo map[*Partition]int64 // offset up to which all events of a partition were removed
	stop      chan struct{}
	done      chan struct{}
}

func (o *Options) validateRetention() error {
	switch {
	case o.Retention < 0:
		return fmt.Errorf("retention of %s: it must be positive, or 0 to keep events forever", o.Retention)
	case o.RetentionBytes != 0 && o.RetentionBytes < minRetentionBytes:
		return fmt.Errorf("retention of %d bytes: it must be at least %d per partition, or 0 to keep all events", o.RetentionBytes, minRetentionBytes)
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
	ticker := time.NewTicker(r.interval())
	defer ticker.Stop()
	for {
		r.removeOld()
		select {
		case <-ticker.C:
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

// removeOld removes expired events of all partitions. What fails is retried by the
// next call.
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
	r.removedTo = live // drops the partitions of deleted hubs
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
		// Remove a tenth more than necessary, so that not every append causes a
		// removal, but never the newest event.
		offset := info.End - r.bytes + r.bytes/10
		next, err := p.log.SeekOffset(offset)
		if err != nil {
			return p.wrapError(err)
		}
		before, passed[p] = max(before, min(next, info.Last)), offset
	}
	return p.Trim(before)
}

// close stops the goroutine and waits for a removal in progress.
func (r *retention) close() {
	if r == nil {
		return
	}
	close(r.stop)
	<-r.done
}
