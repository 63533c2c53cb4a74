//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBody(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 12_345_678} {
		b := body(random, n)
		var is struct{ Number int }
		if err := json.Unmarshal(b, &is); err != nil || is.Number != n || len(b) != bodySize {
			t.Errorf("%d bytes: %v: %s", len(b), err, b)
		}
	}
}

func TestCount(t *testing.T) {
	want := map[place]struct{}{{0, 1}: {}, {0, 2}: {}, {1, 1}: {}}
	var k killed
	k.count(want, map[place]int{{0, 1}: 3, {0, 2}: 1, {3, 7}: 2})
	if k.Lost != 1 || k.Doubled != 2 || k.Aborted != 2 {
		t.Errorf("%+v", k)
	}
}

func TestRatios(t *testing.T) {
	r := newReport()
	loop, other := &peer{Name: loopPeer}, &peer{Name: "other", Source: []string{"config/redpanda.yaml"}}
	for round, speeds := range [][2]float64{{100, 50}, {10, 9}, {40, 28}} { // the machine was slow in the second round
		r.addSpeed(other, &speed{Round: round, PerSecond: speeds[1], Rows: 10, Transactions: 5})
		r.addSpeed(loop, &speed{Round: round, PerSecond: speeds[0], Rows: 10, Transactions: 5})
	}
	r.addKilled(other, &killed{Kills: 3, Doubled: 17})
	if res := r.find(other); res.OfLoop != 0.7 || res.PerSecond != 28 || r.find(loop).OfLoop != 1 {
		t.Errorf("%+v", res)
	}
	var text bytes.Buffer
	r.print(&text)
	for _, want := range []string{"| other | 3 | 28 | 0.70 |", "| 17 |", "kafka_franz"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	docs, err := r.replaceTables([]byte("before\n" + tablesBegin + "old\n" + tablesEnd + "after\n"))
	if err != nil || !bytes.HasPrefix(docs, []byte("before\n"+tablesBegin)) || !bytes.HasSuffix(docs, []byte(tablesEnd+"after\n")) ||
		bytes.Contains(docs, []byte("old")) || !bytes.Contains(docs, []byte("| other | 3 | 28 |")) {
		t.Errorf("%v in\n%s", err, docs)
	}
	if _, err := r.replaceTables([]byte("no tables")); err == nil {
		t.Error("tables were put into a text that has no place for them")
	}
}

func TestCPUBetween(t *testing.T) {
	zero := time.Now()
	c := &cpuSamples{}
	for i := range 11 {
		c.times = append(c.times, zero.Add(time.Duration(i)*100*time.Millisecond))
		c.used = append(c.used, used{time.Duration(i*i) * time.Millisecond, time.Second, time.Duration(i) * time.Second})
	}
	is, err := c.usage(zero.Add(390*time.Millisecond), zero.Add(990*time.Millisecond))
	if want := (used{84 * time.Millisecond, 0, 6 * time.Second}); err != nil || is != want { // 100 ms - 16 ms in the samples behind both
		t.Error(is, err)
	}
	if _, err := c.usage(zero.Add(2*time.Second), zero.Add(3*time.Second)); err == nil {
		t.Error("a run behind the last sample has processor time")
	}
}

func TestPeersHaveTheirSources(t *testing.T) {
	for _, p := range allPeers(options{only: everything}) {
		for _, name := range p.Source {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			if strings.HasPrefix(name, "config/") && !strings.Contains(strings.Join(p.Command, " "), name) {
				t.Errorf("%s does not read %s", p.Name, name)
			}
		}
	}
}

// Sluice and the loop take part in every round, the others in one of three, and none that has
// failed.
func TestTurns(t *testing.T) {
	pair, other, failed := &peer{Name: sluicePeer}, &peer{Name: "other"}, &peer{Name: "failed", failed: errors.New("failed")}
	l := &lab{options: options{every: 3}, peers: []*peer{pair, other, failed}}
	for round, want := range [][]*peer{{pair, other}, {pair}, {pair}, {other, pair}} {
		if got := l.turns(round); !slices.Equal(got, want) {
			t.Errorf("round %d: %d peers", round+1, len(got))
		}
	}
}
