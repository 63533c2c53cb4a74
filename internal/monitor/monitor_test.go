package monitor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/terminal"
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

func TestFigures(t *testing.T) {
	m := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if got := m.Figures(); got != (Figures{Lag: -1}) {
		t.Errorf("at first %+v", got)
	}
	broken := errors.New("broken")
	for _, o := range []sluice.Observation{
		{Kind: sluice.KindAcquired, Partition: "0"},
		{Kind: sluice.KindAcquired, Partition: "1"},
		{Kind: sluice.KindFetched, Partition: "0", Lag: 70},
		{Kind: sluice.KindCommitted, Partition: "0", Events: 30, Lag: 40},
		{Kind: sluice.KindParked, Partition: "0"},
		{Kind: sluice.KindRedriven, Partition: "1"},
		{Kind: sluice.KindCommitted, Partition: "1", Events: 5, Lag: -1},
		{Kind: sluice.KindStopped, Partition: "1", Err: broken},
	} {
		m.Observe(o)
	}
	if got, want := m.Figures(), (Figures{Events: 35, DeadLetters: 1, Redriven: 1, Lag: 40, Partitions: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := m.Stopped(); len(s) != 1 || s["1"] != broken {
		t.Errorf("stopped: %v", s)
	}
	m.Observe(sluice.Observation{Kind: sluice.KindOpened, Partition: "1"})
	m.Observe(sluice.Observation{Kind: sluice.KindReleased, Partition: "0"})
	if s, f := m.Stopped(), m.Figures(); len(s) != 0 || f.Lag != -1 || f.Partitions != 1 {
		t.Errorf("at the end: stopped %v, %+v", s, f)
	}
}

func TestBatchesAreNotLogged(t *testing.T) {
	log, text := recorder()
	m := New(log)
	m.Observe(sluice.Observation{Kind: sluice.KindAcquired, Partition: "3", Epoch: 7})
	for range 100 {
		m.Observe(sluice.Observation{Kind: sluice.KindFetched, Partition: "3"})
		m.Observe(sluice.Observation{Kind: sluice.KindCommitted, Partition: "3"})
		m.Observe(sluice.Observation{Kind: sluice.KindRenewed, Partition: "3"})
	}
	if got, want := text.String(), "level=INFO msg=\"partition taken\" partition=3 epoch=7\n"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestFloodIsCounted(t *testing.T) {
	log, text := recorder()
	m := New(log)
	began := time.Unix(1e9, 0)
	parked := func(after time.Duration) {
		m.Observe(sluice.Observation{Kind: sluice.KindParked, Time: began.Add(after), Partition: "0", Err: errors.New("odd")})
	}
	for range 1000 {
		parked(0)
	}
	parked(floodWindow)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != floodLines+2 || !strings.Contains(lines[floodLines], "990 more") {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	if got := m.Figures().DeadLetters; got != 1001 {
		t.Errorf("%d dead letters counted", got)
	}
}

func TestShowLogsWithoutATerminal(t *testing.T) {
	log, text := recorder()
	m := New(log)
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	screen := terminal.NewScreen(other)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		m.Observe(sluice.Observation{Kind: sluice.KindCommitted, Partition: "0", Events: 1000, Lag: 0})
		m.Show(ctx, screen)
	})
	if n := strings.Count(text.String(), "msg=progress events=1000"); n != 2 {
		t.Errorf("%d progress lines in 11 s:\n%s", n, text)
	}
}
