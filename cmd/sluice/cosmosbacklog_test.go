package main_test

import (
	"fmt"
	"testing"
	"time"
)

// TestCosmosStopsUnderABacklog stops the pipeline while minutes of work wait. It uses
// the RU that it may use, every partition gets on from the beginning, and what waits
// does not delay the stop.
func TestCosmosStopsUnderABacklog(t *testing.T) {
	for ranges, most := range map[int]time.Duration{1: 2 * time.Second} {
		t.Run(fmt.Sprint(ranges), func(t *testing.T) {
			const n, ru = 60_000, 3000
			w := cosmosServers(t, ru, ranges)
			w.send(n)
			p := start(t, "", w.env, "run", w.config)
			spent := func() float64 {
				s, err := w.account.ContainerStats("db", "docs")
				if err != nil {
					t.Fatal(err)
				}
				return s.Spent
			}
			// The account limits how fast this is, so it takes five seconds. If the machine is busy, it takes
			// longer, as the checkpoints do.
			await(t, "the RU of five seconds to be spent", func() bool { return spent() >= 5*ru })
			for _, c := range checkpoints(t, w.env, w.config) {
				if c.Position == nil || *c.Position < 0 {
					t.Errorf("partition %s: no checkpoint after the RU of 5 s", c.Partition)
				}
			}
			writes, before, since := w.writes(), spent(), time.Now()
			<-time.After(15 * time.Second)
			took := time.Since(since).Seconds()
			perSecond := (spent() - before) / took
			if perSecond < 0.94*ru {
				t.Errorf("%.0f RU/s used of %d", perSecond, ru)
			}
			began := time.Now()
			p.stop()
			stopped := time.Since(began)
			if stopped > most {
				t.Errorf("the stop took %v, want at most %v", stopped, most)
			}
			t.Logf("%.0f writes/s, %.0f RU/s; the stop took %v", float64(w.writes()-writes)/took, perSecond, stopped)
		})
	}
}
