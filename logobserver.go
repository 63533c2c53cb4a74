package sluice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/group"
)

// LogObserver returns an observer that writes log lines for operators. The level says
// who needs a line:
//
//   - error: a partition is halted and an operator has to act
//   - warning: something failed: a dependency, an event, a lease; or a partition is
//     stalled
//   - info: a partition was acquired or released, reading started, a dead letter was
//     applied
//   - debug: each batch, renewal and request
//
// Of lines with the same text it writes ten in five seconds, and of warnings that keep
// coming ten a minute; where a store throttles, one a minute. Then it writes how many
// there were more. It reads no bodies of events.
//
// A consumer has one anyway, with [Config].Logger. A nil logger is [slog.Default] at the time of
// the line.
func LogObserver(logger *slog.Logger) driver.Observer { return &logObserver{logger: logger} }

type logObserver struct {
	logger *slog.Logger
	limits lineLimiter
}

// Observe implements [driver.Observer].
func (l *logObserver) Observe(o driver.Observation) {
	log := l.logger
	if log == nil {
		log = slog.Default()
	}
	level, text := logLine(&o)
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug {
		admitted, heldBack := l.limits.admit(level, text, o.Time)
		if heldBack > 0 {
			log.Log(ctx, level, fmt.Sprintf("%s: %d more", text, heldBack))
		}
		if !admitted {
			return
		}
	}
	log.LogAttrs(ctx, level, text, logFields(&o)...)
}

// logLine returns the level and the text of an observation's log line.
func logLine(o *driver.Observation) (slog.Level, string) {
	switch o.Kind {
	case driver.KindAcquired:
		return slog.LevelInfo, "partition acquired"
	case driver.KindReleased:
		return slog.LevelInfo, "partition released"
	case driver.KindOpened:
		return slog.LevelInfo, "reading started"
	case driver.KindRedriven:
		return slog.LevelInfo, "dead letter applied"
	case driver.KindLost:
		return slog.LevelWarn, "partition lost"
	case driver.KindFenced:
		return slog.LevelWarn, "transaction fenced, nothing written"
	case driver.KindUnknown:
		return slog.LevelWarn, "commit outcome unknown, re-reading checkpoint"
	case driver.KindRetried:
		if isThrottled(o.Err) {
			return slog.LevelWarn, throttledText
		}
		return slog.LevelWarn, "event failed, retrying"
	case driver.KindParked:
		if o.RetriedIn > 0 {
			return slog.LevelWarn, "event failed, set aside and retried later"
		}
		return slog.LevelWarn, "event stored as dead letter"
	case driver.KindRedriveFailed:
		if o.RetriedIn > 0 {
			return slog.LevelWarn, "event failed again, retried later"
		}
		return slog.LevelWarn, "dead letter failed again"
	case driver.KindFailed:
		return logFailure(o.Err)
	case driver.KindHookFailed:
		return slog.LevelWarn, "hook failed"
	case driver.KindHalted:
		return slog.LevelError, "partition halted: operator action required"
	case driver.KindCopyFailed:
		return slog.LevelWarn, "dead letters not copied, retrying"
	case driver.KindStalled:
		return slog.LevelWarn, "partition stalled"
	case driver.KindResumed:
		return slog.LevelInfo, "partition moves again"
	}
	return slog.LevelDebug, o.Kind.String()
}

// logFailure returns the level and the text of a KindFailed.
func logFailure(err error) (slog.Level, string) {
	var stuck *driver.BacklogError
	var silent *driver.SilentReaderError
	var waits *group.WaitingError
	switch {
	case errors.As(err, &silent):
		return slog.LevelWarn, "reader silent, opening another"
	case errors.As(err, &stuck):
		return slog.LevelWarn, "event stuck in flight"
	case errors.Is(err, ErrRejected):
		return slog.LevelWarn, "event rejected, skipped"
	case errors.As(err, &waits):
		return slog.LevelWarn, "partitions missing, waiting"
	case errors.Is(err, ErrSharedOwner):
		return slog.LevelError, "owner name used by two processes: operator action required"
	}
	return slog.LevelWarn, "dependency error, retrying"
}

const throttledText = "throttled by store, retrying"

// isThrottled reports whether the store asked for the retry, as Cosmos DB does with 429
// when its rate is used up.
func isThrottled(err error) bool {
	var again *driver.RetryError
	return errors.As(err, &again)
}

// logFields returns the fields of an observation's log line.
func logFields(o *driver.Observation) []slog.Attr {
	list := groupFields(o)
	if o.Partition != "" {
		list = append(list, slog.String("partition", o.Partition), slog.Int64("epoch", o.Epoch))
	}
	switch o.Kind {
	case driver.KindClaimed, driver.KindOpened:
		list = append(list, slog.String("after", o.To.String()))
	case driver.KindFetched:
		list = append(list, slog.Int("events", o.Events), slog.Int("bytes", o.Bytes), slog.String("to", o.To.String()), slog.Int64("lag", o.Lag))
	case driver.KindCommitted:
		list = append(list, slog.Int("events", o.Events), slog.String("from", o.From.String()), slog.String("to", o.To.String()),
			slog.Int64("lag", o.Lag), slog.Duration("took", o.Duration))
		list = appendFiltered(list, o)
	case driver.KindFenced, driver.KindUnknown:
		list = append(list, slog.String("from", o.From.String()), slog.String("to", o.To.String()))
	case driver.KindWritten:
		list = append(list, slog.Int("records", o.Events), slog.String("done", o.To.String()), slog.Float64("cost", o.Cost),
			slog.Int("in_flight", o.InFlight), slog.Int64("lag", o.Lag))
		list = appendFiltered(list, o)
	case driver.KindRetried, driver.KindParked, driver.KindRedriveFailed:
		list = append(list, eventFields(o)...)
		if o.Attempt > 0 {
			list = append(list, slog.Int("attempt", o.Attempt))
		}
		if o.RetriedIn > 0 {
			list = append(list, slog.Duration("retried_in", o.RetriedIn))
		}
	case driver.KindRedriven:
		list = append(append(list, eventFields(o)...), slog.Duration("took", o.Duration))
	case driver.KindRenewed:
		list = append(list, slog.Duration("took", o.Duration))
	case driver.KindCopied, driver.KindCopyFailed:
		list = append(list, slog.Int("dead_letters", o.Events))
	case driver.KindPassed:
		list = append(list, slog.Int64("control", o.Passed.Control), slog.Int64("aborted", o.Passed.Aborted), slog.Int64("removed", o.Passed.Removed), slog.String("to", o.To.String()))
	case driver.KindStalled, driver.KindResumed:
		list = append(list, slog.Duration("lasted", o.Duration))
	}
	if o.Err != nil {
		list = append(list, slog.String("error", o.Err.Error()))
	}
	return list
}

// groupFields returns the topic and the consumer group.
func groupFields(o *driver.Observation) []slog.Attr {
	if o.Group.Topic == "" {
		return nil
	}
	return []slog.Attr{slog.String("topic", o.Group.Topic), slog.String("group", o.Group.Name)}
}

// eventFields returns which event an observation is about.
func eventFields(o *driver.Observation) []slog.Attr {
	list := []slog.Attr{slog.String("sequence", o.To.String())}
	if o.Event == nil {
		return list
	}
	for _, text := range []struct{ name, value string }{{"offset", o.To.Offset}, {"id", o.Event.MessageID}} {
		if text.value != "" {
			list = append(list, slog.String(text.name, text.value))
		}
	}
	return list
}

// appendFiltered appends how many events were left out, if there were any.
func appendFiltered(list []slog.Attr, o *driver.Observation) []slog.Attr {
	if o.Filtered == 0 {
		return list
	}
	return append(list, slog.Int("filtered", o.Filtered))
}

// lineLimit is how many lines of one text are written in a window of time; the rest is
// counted.
type lineLimit struct {
	lines    int
	min, max time.Duration // of the window
}

// limitOf returns the limit of a text. A store that throttles is normal.
func limitOf(level slog.Level, text string) lineLimit {
	switch {
	case text == throttledText:
		return lineLimit{1, time.Minute, time.Minute}
	case level < slog.LevelWarn:
		return lineLimit{10, 5 * time.Second, 5 * time.Second}
	}
	return lineLimit{10, 5 * time.Second, time.Minute}
}

// lineLimiter holds back lines that come too fast.
type lineLimiter struct {
	mu      sync.Mutex
	windows map[string]*lineWindow // by text
}

type lineWindow struct {
	began    time.Time
	length   time.Duration
	admitted int
	heldBack int
}

// admit reports whether a line is to be written, and how many lines of the window
// before were held back. While lines of a text keep coming, each window is twice as
// long as the one before.
func (f *lineLimiter) admit(level slog.Level, text string, now time.Time) (admitted bool, heldBack int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.windows == nil {
		f.windows = map[string]*lineWindow{}
	}
	limit, w := limitOf(level, text), f.windows[text]
	if w == nil {
		w = &lineWindow{began: now, length: limit.min}
		f.windows[text] = w
	}
	if age := now.Sub(w.began); age >= w.length || age < 0 {
		length := limit.min
		if age < 2*w.length {
			length = min(2*w.length, limit.max)
		}
		heldBack = w.heldBack
		*w = lineWindow{began: now, length: length}
	}
	if w.admitted == limit.lines {
		w.heldBack++
		return false, heldBack
	}
	w.admitted++
	return true, heldBack
}
