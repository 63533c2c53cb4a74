package progress

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// describe returns the level and the text of an observation's log line.
func describe(o sluice.Observation) (slog.Level, string) {
	switch o.Kind {
	case sluice.KindAcquired:
		return slog.LevelInfo, "partition acquired"
	case sluice.KindReleased:
		return slog.LevelInfo, "partition released"
	case sluice.KindOpened:
		return slog.LevelInfo, "reading started"
	case sluice.KindRedriven:
		return slog.LevelInfo, "dead letter applied"
	case sluice.KindLost:
		return slog.LevelWarn, "partition lost"
	case sluice.KindFenced:
		return slog.LevelWarn, "transaction fenced, nothing written"
	case sluice.KindUnknown:
		return slog.LevelWarn, "commit outcome unknown, re-reading checkpoint"
	case sluice.KindRetried:
		if throttled(o) {
			return slog.LevelWarn, throttledText
		}
		return slog.LevelWarn, "event failed, retrying"
	case sluice.KindParked:
		return slog.LevelWarn, "event stored as dead letter"
	case sluice.KindRedriveFailed:
		return slog.LevelWarn, "dead letter failed again"
	case sluice.KindFailed:
		var stuck *sluice.BacklogError
		if errors.As(o.Err, &stuck) {
			return slog.LevelWarn, "event stuck in flight"
		}
		if errors.Is(o.Err, sluice.ErrRejected) {
			return slog.LevelWarn, "event rejected, skipped"
		}
		return slog.LevelWarn, "dependency error, retrying"
	case sluice.KindHookFailed:
		return slog.LevelWarn, "hook failed"
	case sluice.KindStopped:
		return slog.LevelError, "partition halted: operator action required"
	}
	return slog.LevelDebug, o.Kind.String()
}

const throttledText = "throttled by store, retrying"

// throttled reports whether the store asked for the retry, as Cosmos DB does
// with 429 when its rate is used up.
func throttled(o sluice.Observation) bool {
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

// logLimit is how many lines of one text are logged in a window of time; the rest
// is counted.
type logLimit struct {
	lines  int
	window time.Duration
}

// limitOf returns the limit of a text. A throttling store is normal, and the
// progress counts its retries.
func limitOf(text string) logLimit {
	if text == throttledText {
		return logLimit{1, time.Minute}
	}
	return logLimit{10, 5 * time.Second}
}

// lineLimiter holds back lines that come too fast.
type lineLimiter struct {
	log *slog.Logger
	mu  sync.Mutex
	of  map[string]*window // by text
}

type window struct {
	since    time.Time
	admitted int
	held     int
}

func (f *lineLimiter) admits(text string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*window{}
	}
	e, limit := f.of[text], limitOf(text)
	if e == nil || now.Sub(e.since) >= limit.window || now.Before(e.since) {
		if e != nil && e.held > 0 {
			f.log.Warn(fmt.Sprintf("%s: %d more", text, e.held))
		}
		e = &window{since: now}
		f.of[text] = e
	}
	if e.admitted == limit.lines {
		e.held++
		return false
	}
	e.admitted++
	return true
}
