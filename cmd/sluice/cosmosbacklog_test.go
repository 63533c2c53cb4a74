package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCosmosStopsUnderABacklog stops the pipeline while minutes of work wait. It uses
// the RU that it may use, every partition gets on from the beginning, and what waits
// does not delay the stop.
func TestCosmosStopsUnderABacklog(t *testing.T) {
	const n, ru, most = 60_000, 3000, 2 * time.Second
	w := cosmosServers(t, ru, 1)
	w.send(n)
	p := start(t, "", w.env, "run", w.config)
	began := time.Now()
	await(t, "the first documents", func() bool { return w.writes() > 0 })
	spent := func() float64 {
		s, err := w.account.ContainerStats("db", "docs")
		if err != nil {
			t.Fatal(err)
		}
		return s.Spent
	}
	p.runs(began, 5*time.Second)
	for _, c := range checkpoints(t, w.env, w.config) {
		if c.Position == nil || *c.Position < 0 {
			t.Errorf("partition %s: no checkpoint after 5 s", c.Partition)
		}
	}
	writes, before, since, waited := w.writes(), spent(), time.Now(), p.waited()
	<-time.After(15 * time.Second)
	took := time.Since(since).Seconds()
	took -= min((p.waited() - waited).Seconds(), took/2) // without a CPU, as runs does
	perSecond := (spent() - before) / took
	if perSecond < 0.94*ru {
		t.Errorf("%.0f RU/s used of %d", perSecond, ru)
	}
	began = time.Now()
	p.stop()
	stopped := time.Since(began)
	if stopped > most {
		t.Errorf("the stop took %v, want at most %v", stopped, most)
	}
	t.Logf("%.0f writes/s, %.0f RU/s; the stop took %v", float64(w.writes()-writes)/took, perSecond, stopped)
}

// runs returns when the process has run for a time since it began. On a busy machine that takes
// longer, up to five times: what its threads have waited for a CPU does not count.
func (p *process) runs(began time.Time, d time.Duration) {
	p.t.Helper()
	for {
		elapsed := time.Since(began)
		left := d - elapsed + min(p.waited(), elapsed*4/5)
		if left <= 0 {
			return
		}
		<-time.After(left)
	}
}

// waited returns how long the process's threads have waited for a CPU; 0 where the system does not say.
// https://docs.kernel.org/scheduler/sched-stats.html
func (p *process) waited() (sum time.Duration) {
	p.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		var running, waiting time.Duration
		if text, err := os.ReadFile(file); err == nil { // else the thread has ended
			if _, err := fmt.Sscan(string(text), &running, &waiting); err != nil {
				p.t.Fatal(err)
			}
			sum += waiting
		}
	}
	return sum
}
