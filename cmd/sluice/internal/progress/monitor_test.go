package progress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

func recorder() (*slog.Logger, *strings.Builder) {
	b := &strings.Builder{}
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), b
}

func TestStats(t *testing.T) {
	m := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if got := m.Stats(); got != (partitionstate.Totals{Lag: -1}) {
		t.Errorf("at first %+v", got)
	}
	broken := errors.New("broken")
	for _, o := range []driver.Observation{
		{Kind: driver.KindAcquired, Partition: "0"},
		{Kind: driver.KindAcquired, Partition: "1"},
		{Kind: driver.KindFetched, Partition: "0", Lag: 70},
		{Kind: driver.KindCommitted, Partition: "0", Events: 30, Lag: 40},
		{Kind: driver.KindParked, Partition: "0"},
		{Kind: driver.KindRedriven, Partition: "1"},
		{Kind: driver.KindCommitted, Partition: "1", Events: 5, Lag: -1},
		{Kind: driver.KindHalted, Partition: "1", Err: broken},
	} {
		m.Observe(o)
	}
	if got, want := m.Stats(), (partitionstate.Totals{Events: 35, DeadLetters: 1, Redriven: 1, Lag: 40, Partitions: 2, Halted: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := m.Stopped(); len(s) != 1 || s["1"] != broken {
		t.Errorf("stopped: %v", s)
	}
	m.Observe(driver.Observation{Kind: driver.KindResumed, Partition: "1"})
	m.Observe(driver.Observation{Kind: driver.KindReleased, Partition: "0"})
	if s, f := m.Stopped(), m.Stats(); len(s) != 0 || f.Lag != -1 || f.Partitions != 1 {
		t.Errorf("at the end: stopped %v, %+v", s, f)
	}
}

func TestBatchesAreNotLogged(t *testing.T) {
	log, text := recorder()
	m := New(log)
	m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "3", Epoch: 7})
	for range 100 {
		m.Observe(driver.Observation{Kind: driver.KindFetched, Partition: "3"})
		m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "3"})
		m.Observe(driver.Observation{Kind: driver.KindRenewed, Partition: "3"})
	}
	if got, want := text.String(), "level=INFO msg=\"partition acquired\" partition=3 epoch=7\n"; got != want {
		t.Errorf("got %s", got)
	}
}

// Operators search for this line, so its text, level and fields stay.
func TestUnknownCommitIsLogged(t *testing.T) {
	log, text := recorder()
	New(log).Observe(driver.Observation{Kind: driver.KindUnknown, Partition: "3", Epoch: 7,
		From: sluice.Position{Sequence: 41}, To: sluice.Position{Sequence: 57}, Err: sluice.ErrUnknown})
	want := `level=WARN msg="commit outcome unknown, re-reading checkpoint" partition=3 epoch=7 from=41 to=57 error="` + sluice.ErrUnknown.Error() + "\"\n"
	if got := text.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFloodIsCounted(t *testing.T) {
	log, text := recorder()
	m := New(log)
	began := time.Unix(1e9, 0)
	parked := func(after time.Duration) {
		m.Observe(driver.Observation{Kind: driver.KindParked, Time: began.Add(after), Partition: "0", Err: errors.New("odd")})
	}
	for range 1000 {
		parked(0)
	}
	parked(5 * time.Second)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 10+2 || !strings.Contains(lines[10], "990 more") {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	if got := m.Stats().DeadLetters; got != 1001 {
		t.Errorf("%d dead letters counted", got)
	}
}

// TestAStormOfRetries: a store that is too busy for ten minutes, at fifty
// retries a second, is a line a minute; a failure of its own shows beside it.
func TestAStormOfRetries(t *testing.T) {
	log, text := recorder()
	m := New(log)
	began := time.Unix(1e9, 0)
	retried := func(at time.Duration, err error, attempt int) {
		m.Observe(driver.Observation{Kind: driver.KindRetried, Time: began.Add(at), Partition: "0", Attempt: attempt, Err: err})
	}
	throttled := driver.RetryAfter(errors.New("429 request rate is large"), time.Second)
	for at := time.Duration(0); at < 10*time.Minute; at += 20 * time.Millisecond {
		retried(at, throttled, 0)
	}
	retried(10*time.Minute-1, errors.New("disk is odd"), 2)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 10+9+1 {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	if !strings.Contains(lines[0], "throttled by store, retrying") || !strings.Contains(lines[0], "429") || strings.Contains(lines[0], "attempt=") {
		t.Errorf("the first line is %s", lines[0])
	}
	if !strings.Contains(lines[1], "2999 more") {
		t.Errorf("the second line is %s", lines[1])
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "event failed, retrying") || !strings.Contains(last, "attempt=2") || !strings.Contains(last, "disk is odd") {
		t.Errorf("the last line is %s", last)
	}
	if got := m.Stats().Retries; got != 30_001 {
		t.Errorf("%d retries counted", got)
	}
}

func TestAnEventThatDoesNotGetDone(t *testing.T) {
	log, text := recorder()
	New(log).Observe(driver.Observation{Kind: driver.KindFailed, Partition: "4", Epoch: 2,
		Err: &driver.BacklogError{Partition: "4", Sequence: 812, Age: 11 * time.Minute, InFlight: 70}})
	if got := text.String(); !strings.Contains(got, `msg="event stuck in flight" partition=4`) || !strings.Contains(got, "event 812 stuck in flight for 11m0s") {
		t.Errorf("got %s", got)
	}
}

func TestRejectedEventIsSkipped(t *testing.T) {
	log, text := recorder()
	New(log).Observe(driver.Observation{Kind: driver.KindFailed, Partition: "4", Epoch: 2, Err: driver.Reject(errors.New("event 7 does not count: too late"))})
	if got, want := text.String(), "level=WARN msg=\"event rejected, skipped\" partition=4 epoch=2 error=\"event 7 does not count: too late\"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// stream observes two partitions of a pipeline at least once, for a second.
func stream(m *Monitor) {
	for _, o := range []driver.Observation{
		{Kind: driver.KindAcquired, Partition: "9"},
		{Kind: driver.KindClaimed, Partition: "9", To: sluice.Position{Sequence: 99}},
		{Kind: driver.KindAcquired, Partition: "10"},
		{Kind: driver.KindClaimed, Partition: "10", To: driver.Unset},
		{Kind: driver.KindWritten, Partition: "9", Events: 900, Cost: 6000, InFlight: 40, Lag: 500, To: sluice.Position{Sequence: 999}},
		{Kind: driver.KindWritten, Partition: "10", Events: 100, Cost: 100, InFlight: 2, Lag: 7000},
		{Kind: driver.KindCommitted, Partition: "9", Events: 850, Lag: 550, To: sluice.Position{Sequence: 949}},
		{Kind: driver.KindFetched, Partition: "9", Lag: 500},
		{Kind: driver.KindRetried, Partition: "9", Err: driver.RetryAfter(errors.New("busy"), 0)},
		{Kind: driver.KindParked, Partition: "10", Err: errors.New("odd")},
	} {
		m.Observe(o)
	}
}

func TestStatsOfAStream(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	stream(m)
	want := partitionstate.Totals{Events: 850, DeadLetters: 1, Lag: 7500, Partitions: 2,
		AtLeastOnce: true, Written: 1000, Retries: 1, Cost: 6100, InFlight: 42}
	if got := m.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// What is lost does not count any more; what comes late from there neither.
	m.Observe(driver.Observation{Kind: driver.KindLost, Partition: "10"})
	m.Observe(driver.Observation{Kind: driver.KindWritten, Partition: "10", Events: 1, InFlight: 2, Lag: 7000})
	want.Lag, want.Partitions, want.InFlight, want.Written = 500, 1, 40, 1001
	if got := m.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLines(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	now := time.Unix(1e9, 0)
	s := &show{}
	s.take(m, now)
	m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", Events: 5000, Lag: 40})
	m.Observe(driver.Observation{Kind: driver.KindRedriven})
	s.take(m, now.Add(2*time.Second))
	if got, want := s.line(62*time.Second), "5,000 events  2,500/s  lag ?  0 dead letters  0 partitions  1 redriven  1m2s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	m = New(slog.New(slog.DiscardHandler))
	s = &show{}
	s.take(m, now)
	stream(m)
	s.take(m, now.Add(2*time.Second))
	if got, want := s.line(62*time.Second), "1,000 written  500/s  lag 7,500  1 dead letter  3,050 RU/s (6.1 each)  1 retry  42 in flight  2 partitions  1m2s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Partitions that do not move are counted in each line, until they move.
func TestLinesOfPartitionsThatDoNotMove(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	s := &show{}
	line := func(o driver.Observation) (string, string) {
		m.Observe(o)
		s.take(m, time.Unix(1e9, 0))
		attributes := ""
		for _, a := range s.attributes(time.Second) {
			attributes += " " + a.String()
		}
		return s.line(time.Second), attributes
	}
	for _, p := range []string{"0", "1", "2"} {
		m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: p})
	}
	m.Observe(driver.Observation{Kind: driver.KindHalted, Partition: "0", Err: sluice.ErrRetention})
	m.Observe(driver.Observation{Kind: driver.KindStalled, Partition: "0", Err: sluice.ErrRetention})
	text, attributes := line(driver.Observation{Kind: driver.KindStalled, Partition: "1", Err: sluice.ErrRetention})
	if !strings.Contains(text, "lag ?  1 halted  1 stalled  ") || !strings.Contains(attributes, " halted=1 stalled=1") {
		t.Errorf("got %q, %q", text, attributes)
	}
	m.Observe(driver.Observation{Kind: driver.KindResumed, Partition: "0"})
	if text, attributes := line(driver.Observation{Kind: driver.KindResumed, Partition: "1"}); strings.Contains(text+attributes, "halted") || strings.Contains(text+attributes, "stalled") {
		t.Errorf("got %q, %q", text, attributes)
	}
}

func TestManyPartitions(t *testing.T) {
	log, text := recorder()
	m := New(log)
	for i := range 100 {
		p := strconv.Itoa(i)
		m.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: p})
		m.Observe(driver.Observation{Kind: driver.KindWritten, Partition: p, Lag: int64(i % 50)})
	}
	text.Reset()
	log.LogAttrs(t.Context(), slog.LevelInfo, "partitions", m.partitions()...)
	got := text.String()
	if n := strings.Count(got, ".checkpoint="); n != 16 || strings.Count(got, "\n") != 1 {
		t.Errorf("%d partitions in %s", n, got)
	}
	// Those furthest behind, in order; 2×(0+…+41) remain elsewhere.
	if !strings.Contains(got, "msg=partitions 42.checkpoint=unset 42.remain=42 43.checkpoint") || !strings.Contains(got, "99.remain=49 others.partitions=84 others.remain=1722") {
		t.Errorf("got %s", got)
	}
}

// unseen calls show with a screen that is no terminal, until so much virtual
// time has passed.
func unseen(t *testing.T, lasting time.Duration, show func(context.Context, *term.Screen)) {
	t.Helper()
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	screen := term.NewScreen(other)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lasting)
		defer cancel()
		show(ctx, screen)
	})
}

func TestShowLogsWithoutATerminal(t *testing.T) {
	log, text := recorder()
	m := New(log)
	unseen(t, 11*time.Second, func(ctx context.Context, screen *term.Screen) {
		m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", Events: 1000, Lag: 0})
		m.Show(ctx, screen)
	})
	if n := strings.Count(text.String(), "msg=progress events=1000"); n != 1 {
		t.Errorf("%d progress lines in 11 s:\n%s", n, text)
	}
}

// TestIdleIsQuiet: while nothing changes there is a line every ten minutes. After a change there is
// one, and one more when its rate is over.
func TestIdleIsQuiet(t *testing.T) {
	log, text := recorder()
	m := New(log)
	unseen(t, 26*time.Minute, func(ctx context.Context, screen *term.Screen) {
		time.AfterFunc(12*time.Minute+time.Second, func() {
			m.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", Events: 1000, Lag: 0})
		})
		m.Show(ctx, screen)
	})
	var got []string
	for _, f := range strings.Fields(text.String()) {
		if strings.HasPrefix(f, "events=") || strings.HasPrefix(f, "per_second=") {
			got = append(got, f)
		}
	}
	want := "events=0 per_second=0 events=0 per_second=0 events=1000 per_second=200 events=1000 per_second=0 events=1000 per_second=0"
	if strings.Join(got, " ") != want {
		t.Errorf("the lines have\n%s\nwant\n%s", strings.Join(got, " "), want)
	}
}

func TestShowLogsThePartitionsOfAStream(t *testing.T) {
	log, text := recorder()
	m := New(log)
	unseen(t, 6*time.Second, func(ctx context.Context, screen *term.Screen) {
		time.AfterFunc(time.Second, func() { stream(m) })
		m.Show(ctx, screen)
	})
	want := "level=INFO msg=progress written=1000 per_second=200 dead_letters=1 retries=1 in_flight=42 lag=7500 ru_each=6.10 ru_per_second=1220 partitions=2 seconds=5\n" +
		"level=INFO msg=partitions 9.checkpoint=949 9.remain=500 10.checkpoint=unset 10.remain=7000\n"
	if got := text.String(); !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestShowLogsEachStage(t *testing.T) {
	log, text := recorder()
	one, two := New(log.With("stage", "one")), New(log.With("stage", "two"))
	unseen(t, 6*time.Second, func(ctx context.Context, screen *term.Screen) {
		time.AfterFunc(time.Second, func() {
			one.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0", Events: 1000, Lag: 0})
		})
		ShowStages(ctx, screen, Stage{"one", one}, Stage{"two", two})
	})
	want := "level=INFO msg=progress stage=one events=1000 per_second=200 lag=unknown dead_letters=0 partitions=0\n" +
		"level=INFO msg=progress stage=two events=0 per_second=0 lag=unknown dead_letters=0 partitions=0\n"
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestStagesShareALine(t *testing.T) {
	now := time.Unix(1e9, 0)
	stages := make([]Stage, 2)
	shows := make([]*show, 2)
	for i, name := range []string{"clean", "table"} {
		stages[i] = Stage{name, New(slog.New(slog.DiscardHandler))}
		shows[i] = &show{}
		shows[i].take(stages[i].Monitor, now)
	}
	stream(stages[0].Monitor)
	for i := range stages {
		shows[i].take(stages[i].Monitor, now.Add(2*time.Second))
	}
	if got, want := together(stages, shows, 62*time.Second), "clean 500/s  lag 7,500  1 dead | table 0/s  lag ?  1m2s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
