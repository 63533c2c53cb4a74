package demo

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestLoad: what is due never falls, makes no jumps, and comes to an end.
func TestLoad(t *testing.T) {
	const step = 10 * time.Millisecond
	for _, once := range []bool{true, false} {
		var before, most int64
		var over bool
		for after := time.Duration(0); after < 2*time.Minute; after += step {
			events, rate, ended := due(after, once)
			if events < before || events-before > most*step.Milliseconds()/1000+2 {
				t.Fatalf("after %v %d events are due, and just before it were %d", after, events, before)
			}
			if over && (!ended || events != before || rate != 0) {
				t.Fatalf("after %v the load begins again", after)
			}
			before, over, most = events, ended, max(most, rate)
		}
		if over != once || most <= 3*workerRate {
			t.Errorf("once %t: over %t, at most %d events a second", once, over, most)
		}
		if once && before != 6375 {
			t.Errorf("a wave has %d events", before)
		}
	}
}

// TestWorkersThatDoNothing: the demo does not end well, and says why; that
// there are more and more of them does not help.
func TestWorkersThatDoNothing(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	idle := filepath.Join(t.TempDir(), "idle")
	if err := os.WriteFile(idle, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := OpenAutoscale(t.Context(), t.TempDir(), &AutoscaleConfig{Program: idle, SettleWithin: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	err = d.Run(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "0 of 6375 events are written, the lag is 6375, ") {
		t.Errorf("it ends with %v", err)
	}
	audit, err := d.Audit(t.Context())
	if err != nil || audit.Exact() || audit.Waiting != 6375 {
		t.Errorf("audit %+v, %v", audit, err)
	}
	log, err := d.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ups := 0
	for _, r := range log {
		switch r.Kind {
		case autoscale.Up:
			ups++
		case autoscale.Down:
			t.Errorf("down, while everything waits: %s", r.Reason)
		}
	}
	if ups != mostWorkers-leastWorkers {
		t.Errorf("%d times up", ups)
	}
}

// TestRule: the published rule, but not down while the subscription holds
// something.
func TestRule(t *testing.T) {
	window := func(values ...float64) *autoscale.Window {
		w := &autoscale.Window{}
		for i, v := range values {
			w.Add(autoscale.Point{Time: time.Unix(int64(i), 0), Value: v})
		}
		return w
	}
	for _, c := range []struct {
		lag, billing *autoscale.Window
		want         int
		why          string
	}{
		{window(300, 500, 500), window(0), 3, "above the upper threshold 400"},
		{window(400, 400, 400), window(0), 2, "not above the upper threshold 400"},
		{window(99, 0, 0), window(5, 0), 1, "below the lower threshold 100"},
		{window(99, 0, 0), window(0, 5), 2, "but orders-billing-backlog is 5"},
		{window(99, 0, 100), window(0), 2, "not below the lower threshold 100"},
	} {
		p := Rule().Propose(autoscale.Situation{Instances: 2, Windows: map[string]*autoscale.Window{LagMetric: c.lag, billingMetric: c.billing}})
		if p.Instances != c.want || !strings.Contains(p.Reason, c.why) {
			t.Errorf("%v, %v: %d, %s; want %d, %s", c.lag.Values, c.billing.Values, p.Instances, p.Reason, c.want, c.why)
		}
	}
}
