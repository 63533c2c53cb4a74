package monitor

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// describe gives the level and the text of a kind's log line.
func describe(k sluice.Kind) (slog.Level, string) {
	switch k {
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
		return slog.LevelWarn, "event failed and is tried again"
	case sluice.KindParked:
		return slog.LevelWarn, "event became a dead letter"
	case sluice.KindRedriveFailed:
		return slog.LevelWarn, "dead letter failed again"
	case sluice.KindFailed:
		return slog.LevelWarn, "something outside failed and is tried again"
	case sluice.KindHookFailed:
		return slog.LevelWarn, "hook failed"
	case sluice.KindStopped:
		return slog.LevelError, "partition stopped until a person acts"
	}
	return slog.LevelDebug, k.String()
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
	case sluice.KindRetried, sluice.KindParked, sluice.KindRedriveFailed:
		list = append(list, slog.String("sequence", o.To.String()), slog.Int("attempt", o.Attempt))
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

// Of one kind of trouble so many lines are logged in so long; the rest is
// counted.
const (
	floodLines  = 10
	floodWindow = 5 * time.Second
)

// flood holds back lines of a kind that come too fast.
type flood struct {
	log  *slog.Logger
	mu   sync.Mutex
	kind map[sluice.Kind]*ebb
}

type ebb struct {
	since    time.Time
	admitted int
	held     int
}

func (f *flood) admits(k sluice.Kind, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind == nil {
		f.kind = map[sluice.Kind]*ebb{}
	}
	e := f.kind[k]
	if e == nil || now.Sub(e.since) >= floodWindow || now.Before(e.since) {
		if e != nil && e.held > 0 {
			_, text := describe(k)
			f.log.Warn(fmt.Sprintf("%s: %d more", text, e.held))
		}
		e = &ebb{since: now}
		f.kind[k] = e
	}
	if e.admitted == floodLines {
		e.held++
		return false
	}
	e.admitted++
	return true
}
