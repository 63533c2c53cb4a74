package progress

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// describe gives the level and the text of an observation's log line.
func describe(o sluice.Observation) (slog.Level, string) {
	switch o.Kind {
	case sluice.KindAcquired:
		return slog.LevelInfo, "partition taken"
	case sluice.KindReleased:
		return slog.LevelInfo, "partition given back"
	case sluice.KindOpened:
		return slog.LevelInfo, "reading begins"
	case sluice.KindRedriven:
		return slog.LevelInfo, "dead letter applied"
	case sluice.KindLost:
		return slog.LevelWarn, "partition lost"
	case sluice.KindFenced:
		return slog.LevelWarn, "transaction refused, nothing written"
	case sluice.KindUnknown:
		return slog.LevelWarn, "answer to a commit was lost, the truth is looked up"
	case sluice.KindRetried:
		if busy(o) {
			return slog.LevelWarn, storeIsBusy
		}
		return slog.LevelWarn, "event failed and is tried again"
	case sluice.KindParked:
		return slog.LevelWarn, "event became a dead letter"
	case sluice.KindRedriveFailed:
		return slog.LevelWarn, "dead letter failed again"
	case sluice.KindFailed:
		var stuck *sluice.BacklogError
		if errors.As(o.Err, &stuck) {
			return slog.LevelWarn, "event does not get done"
		}
		if errors.Is(o.Err, sluice.ErrRejected) {
			return slog.LevelWarn, "rejected and passed over"
		}
		return slog.LevelWarn, "something outside failed and is tried again"
	case sluice.KindHookFailed:
		return slog.LevelWarn, "hook failed"
	case sluice.KindStopped:
		return slog.LevelError, "partition stopped until a person acts"
	}
	return slog.LevelDebug, o.Kind.String()
}

const storeIsBusy = "store asks for another attempt later"

// busy tells whether it was the store that asked for the retry, as Cosmos DB
// does with 429 when its rate is used up.
func busy(o sluice.Observation) bool {
	var again *sluice.RetryError
	return errors.As(o.Err, &again)
}

func attributes(o sluice.Observation) []slog.Attr {
	var list []slog.Attr
	if o.Partition != "" {
		list = append(list, slog.String("partition", o.Partition), slog.Int64("epoch", o.Epoch))
	}
	switch o.Kind {
	case sluice.KindClaimed, sluice.KindOpened:
		list = append(list, slog.String("after", o.To.String()))
	case sluice.KindFetched:
		list = append(list, slog.Int("events", o.Events), slog.Int("bytes", o.Bytes), slog.String("to", o.To.String()), slog.Int64("lag", o.Lag))
	case sluice.KindCommitted:
		list = append(list, slog.Int("events", o.Events), slog.String("from", o.From.String()), slog.String("to", o.To.String()),
			slog.Int64("lag", o.Lag), slog.Duration("took", o.Duration))
	case sluice.KindFenced, sluice.KindUnknown:
		list = append(list, slog.String("from", o.From.String()), slog.String("to", o.To.String()))
	case sluice.KindWritten:
		list = append(list, slog.Int("records", o.Events), slog.String("done", o.To.String()), slog.Float64("cost", o.Cost),
			slog.Int("in_flight", o.InFlight), slog.Int64("lag", o.Lag))
	case sluice.KindRetried, sluice.KindParked, sluice.KindRedriveFailed:
		list = append(list, slog.String("sequence", o.To.String()))
		if o.Attempt > 0 {
			list = append(list, slog.Int("attempt", o.Attempt))
		}
	case sluice.KindRedriven:
		list = append(list, slog.String("sequence", o.To.String()), slog.Duration("took", o.Duration))
	case sluice.KindRenewed:
		list = append(list, slog.Duration("took", o.Duration))
	}
	if o.Err != nil {
		list = append(list, slog.String("error", o.Err.Error()))
	}
	return list
}

// bound is how many lines of one text are logged in so long; the rest is
// counted.
type bound struct {
	lines  int
	window time.Duration
}

// boundOf is that of a text. A busy store is everyday life, and the progress
// counts its retries.
func boundOf(text string) bound {
	if text == storeIsBusy {
		return bound{1, time.Minute}
	}
	return bound{10, 5 * time.Second}
}

// flood holds back lines that come too fast.
type flood struct {
	log *slog.Logger
	mu  sync.Mutex
	of  map[string]*ebb // by text
}

type ebb struct {
	since    time.Time
	admitted int
	held     int
}

func (f *flood) admits(text string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*ebb{}
	}
	e, bound := f.of[text], boundOf(text)
	if e == nil || now.Sub(e.since) >= bound.window || now.Before(e.since) {
		if e != nil && e.held > 0 {
			f.log.Warn(fmt.Sprintf("%s: %d more", text, e.held))
		}
		e = &ebb{since: now}
		f.of[text] = e
	}
	if e.admitted == bound.lines {
		e.held++
		return false
	}
	e.admitted++
	return true
}
