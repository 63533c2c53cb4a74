//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// TestCluster: whatever happens to one broker at a time, the cluster keeps all transactions that it
// has acknowledged, and nothing of those that abort; and the comparison with what was sent notices
// a record that is missing, doubled or of an aborted transaction. One broker is killed and one cut
// off; with SLUICE_ATTACK_CLUSTER=1 every fault strikes.
func TestCluster(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	w := &world{
		Config:  Config{Source: Kafka, Plan: Plan{Seed: 1, Events: 3000, Rate: 200}, Records: []json.RawMessage{[]byte(`{"delay":1,"distance":2}`)}, Log: t.Logf},
		secrets: newCanaries(), host: "127.0.0.1",
	}
	root, every := os.Geteuid() == 0, os.Getenv("SLUICE_ATTACK_CLUSTER") != ""
	if root && every {
		w.Plan.Strike = map[Fault]int{FillBroker: 1}
	}
	c := Kafka.make(w).(*cluster)
	w.source = c
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	links, err := c.route()
	if err != nil {
		t.Fatal(err)
	}
	w.clean = &route{log: links}
	enough, sent := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { sent <- c.send(ctx, enough) }()
	random := rand.New(rand.NewPCG(1, 1))
	for _, f := range Kafka.faults {
		if !every && f != KillBroker && f != CutBroker {
			t.Logf("left out: %s, which strikes with SLUICE_ATTACK_CLUSTER=1 and in TestKafka", f)
			continue
		}
		if f == FillBroker && !root {
			t.Logf("left out: %s, which needs root to mount a small disk", f)
			continue
		}
		before := c.acknowledged()
		if err := c.strike(ctx, f, random); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		c.reset()
		t.Logf("%s: %d records acknowledged meanwhile", f, c.acknowledged()-before)
	}
	close(enough)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := c.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := c.compare(t.Context(), &effects{}, &history.Checker{}, &r); err != nil {
		t.Fatal(err)
	}
	t.Log(r.details)
	if len(r.Findings) > 0 {
		need.Verdict(t)
	}
	for _, f := range append(r.Findings, r.lacking...) {
		t.Error(f)
	}
	if r.Events < int64(w.Plan.Events) {
		t.Errorf("%d events in the topic, want %d", r.Events, w.Plan.Events)
	}
}

func TestLedger(t *testing.T) {
	for name, c := range map[string]struct {
		outcome outcome
		seen    []int
		bad     bool
	}{
		"committed":         {committed, []int{1, 1, 1}, false},
		"missing":           {committed, []int{1, 0, 1}, true},
		"all missing":       {committed, []int{0, 0, 0}, true},
		"doubled":           {committed, []int{1, 2, 1}, true},
		"aborted":           {aborted, []int{0, 0, 0}, false},
		"aborted, but read": {aborted, []int{0, 1, 0}, true},
		"unknown, all":      {unknown, []int{1, 1, 1}, false},
		"unknown, nothing":  {unknown, []int{0, 0, 0}, false},
		"unknown, in part":  {unknown, []int{0, 0, 1}, true},
	} {
		var l ledger
		written, _ := l.begin(3)
		l.end(written, c.outcome)
		found := 0
		l.compare(c.seen, nil, func(string, ...any) { found++ })
		if (found > 0) != c.bad {
			t.Errorf("%s: %d findings", name, found)
		}
	}
}
