package progress

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// idleEvery is how often the totals are logged while they do not change.
const idleEvery = 10 * time.Minute

// Show keeps screen's status line up to date until ctx ends; without a
// terminal it logs the totals every five seconds, or every ten minutes while they
// do not change.
func (m *Monitor) Show(ctx context.Context, screen *term.Screen) {
	ShowStages(ctx, screen, Stage{Monitor: m})
}

// Stage is a monitor with the name of what it watches.
type Stage struct {
	Name string
	*Monitor
}

// ShowStages is [Monitor.Show] of several stages, in one line.
func ShowStages(ctx context.Context, screen *term.Screen, stages ...Stage) {
	began := time.Now()
	shows := make([]*show, len(stages))
	take := func(now time.Time) time.Duration {
		for i, s := range stages {
			shows[i].take(s.Monitor, now)
		}
		return now.Sub(began)
	}
	for i := range stages {
		shows[i] = &show{}
	}
	take(began)
	screen.Follow(ctx, func() string {
		running := take(time.Now())
		if len(stages) == 1 {
			return shows[0].line(running)
		}
		return together(stages, shows, running)
	}, func() {
		now := time.Now()
		running := take(now)
		for i, s := range stages {
			if !shows[i].due(now) {
				continue
			}
			s.log.LogAttrs(ctx, slog.LevelInfo, "progress", shows[i].attributes(running)...)
			if shows[i].AtLeastOnce {
				s.log.LogAttrs(ctx, slog.LevelInfo, "partitions", s.partitions()...)
			}
		}
	})
}

// ShowDuring shows stages as [ShowStages] does while do runs.
func ShowDuring(ctx context.Context, screen *term.Screen, do func() error, stages ...Stage) error {
	var watching sync.WaitGroup
	watched, unwatch := context.WithCancel(ctx)
	watching.Go(func() { ShowStages(watched, screen, stages...) })
	err := do()
	unwatch()
	watching.Wait()
	return err
}

// together is a line that the stages share.
func together(stages []Stage, shows []*show, running time.Duration) string {
	parts := make([]string, len(stages))
	for i, s := range stages {
		parts[i] = s.Name + " " + shows[i].brief()
	}
	return strings.Join(parts, " | ") + "  " + running.Truncate(time.Second).String()
}

// show is what is shown: the totals and how fast they grow.
type show struct {
	partitionstate.Totals
	rate, charge       int64 // a second
	speed, chargeSpeed term.Speed

	logged   partitionstate.Totals // by the last line
	rested   bool                  // its rate was 0
	loggedAt time.Time
}

// due reports whether a log line is due, and takes it as written. After the last change there is
// one more line, with the rate 0.
func (s *show) due(now time.Time) bool {
	if s.Totals == s.logged && s.rested && now.Sub(s.loggedAt) < idleEvery {
		return false
	}
	s.logged, s.rested, s.loggedAt = s.Totals, s.rate == 0, now
	return true
}

func (s *show) take(m *Monitor, now time.Time) {
	s.Totals = m.Stats()
	s.rate = s.speed.Add(now, s.Done())
	s.charge = s.chargeSpeed.Add(now, int64(s.Cost))
}

// average is what a record has cost.
func (s *show) average() float64 { return s.Cost / float64(max(s.Written, 1)) }

// lagText is the lag, and how many partitions do not move, in words.
func (s *show) lagText() string {
	text := "lag ?"
	if s.Lag >= 0 {
		text = "lag " + humanize.Count(s.Lag)
	}
	if s.Halted > 0 {
		text += "  " + humanize.Count(s.Halted) + " halted"
	}
	if s.Stalled > 0 {
		text += "  " + humanize.Count(s.Stalled) + " stalled"
	}
	return text
}

// brief is what matters most, for a line that others share.
func (s *show) brief() string {
	text := humanize.Count(s.rate) + "/s  " + s.lagText()
	if s.DeadLetters > 0 {
		text += "  " + humanize.Count(s.DeadLetters) + " dead"
	}
	return text
}

func (s *show) line(running time.Duration) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.AtLeastOnce {
		// What matters most comes first, for terminals are narrow.
		add("%s written", humanize.Count(s.Written))
		add("%s/s", humanize.Count(s.rate))
		add("%s", s.lagText())
		if s.DeadLetters > 0 {
			add("%s", humanize.Plural(s.DeadLetters, "dead letter", "dead letters"))
		}
		if s.Cost > 0 {
			add("%s RU/s (%.1f each)", humanize.Count(s.charge), s.average())
		}
		if s.Retries > 0 {
			add("%s", humanize.Plural(s.Retries, "retry", "retries"))
		}
		add("%s in flight", humanize.Count(s.InFlight))
	} else {
		add("%s", humanize.Plural(s.Events, "event", "events"))
		add("%s/s", humanize.Count(s.rate))
		add("%s", s.lagText())
		add("%s", humanize.Plural(s.DeadLetters, "dead letter", "dead letters"))
	}
	add("%s", humanize.Plural(s.Partitions, "partition", "partitions"))
	if s.Filtered > 0 {
		add("%s filtered", humanize.Count(s.Filtered))
	}
	if s.Redriven > 0 {
		add("%s redriven", humanize.Count(s.Redriven))
	}
	add("%s", running.Truncate(time.Second))
	return strings.Join(parts, "  ")
}

func (s *show) attributes(running time.Duration) []slog.Attr {
	var more []slog.Attr
	if s.Filtered > 0 {
		more = append(more, slog.Int64("filtered", s.Filtered))
	}
	if s.Halted > 0 {
		more = append(more, slog.Int("halted", s.Halted))
	}
	if s.Stalled > 0 {
		more = append(more, slog.Int("stalled", s.Stalled))
	}
	if !s.AtLeastOnce {
		return append([]slog.Attr{slog.Int64("events", s.Events), slog.Int64("per_second", s.rate), slog.Any("lag", known(s.Lag)),
			slog.Int64("dead_letters", s.DeadLetters), slog.Int("partitions", s.Partitions)}, more...)
	}
	list := []slog.Attr{slog.Int64("written", s.Written), slog.Int64("per_second", s.rate), slog.Int64("dead_letters", s.DeadLetters),
		slog.Int64("retries", s.Retries), slog.Int("in_flight", s.InFlight), slog.Any("lag", known(s.Lag))}
	if s.Cost > 0 {
		list = append(list, slog.String("ru_each", fmt.Sprintf("%.2f", s.average())), slog.Int64("ru_per_second", s.charge))
	}
	list = append(list, slog.Int("partitions", s.Partitions), slog.Int64("seconds", int64(running.Seconds())))
	return append(list, more...)
}

// maxListed is how many partitions one log line lists.
const maxListed = 16

// partitions lists each partition's checkpoint and lag. If there are many, it
// lists those that are furthest behind.
func (m *Monitor) partitions() []slog.Attr {
	held := m.state.State().Partitions
	maps.DeleteFunc(held, func(_ string, p partitionstate.Partition) bool { return !p.Held })
	ids := slices.Collect(maps.Keys(held))
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(held[b].Lag, held[a].Lag), byNumber(a, b))
	})
	var list []slog.Attr
	more := ids[min(len(ids), maxListed):]
	ids = ids[:len(ids)-len(more)]
	slices.SortFunc(ids, byNumber)
	for _, id := range ids {
		p := held[id]
		list = append(list, slog.Group(id, slog.String("checkpoint", p.Checkpoint.String()), slog.Any("remain", known(p.Lag))))
	}
	if len(more) > 0 {
		rest := int64(0)
		for _, id := range more {
			rest += max(held[id].Lag, 0)
		}
		list = append(list, slog.Group("others", slog.Int("partitions", len(more)), slog.Int64("remain", rest)))
	}
	return list
}

// byNumber sorts "10" after "9".
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

func known(lag int64) any {
	if lag < 0 {
		return "unknown"
	}
	return lag
}
