//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"sync"
	"syscall"
	"time"
)

// runStats are what a consumer process measured in its run.
type runStats struct {
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_seconds"`
	PeakRSS   int64   `json:"peak_rss_bytes"`
	PeakHeap  int64   `json:"peak_heap_bytes"`
	Allocs    float64 `json:"allocations_per_event"`
	Batch     float64 `json:"events_per_transaction"`
	Enqueued  spread  `json:"enqueued_to_committed,omitzero"`
	Published spread  `json:"published_to_committed,omitzero"`
}

// meter measures from start to stop.
type meter struct {
	job    *job
	parent *parent
	stats  runStats

	began     time.Time
	cpu       time.Duration
	mallocs   uint64
	finish    func() error // of the profiles
	sampling  sync.WaitGroup
	endSample chan struct{}

	mu                  sync.Mutex
	transactions        int
	enqueued, published []time.Duration
}

// start starts the clock, after the parent has confirmed it.
func (m *meter) start() (err error) {
	if m.finish, err = profile(m.job.Profiles); err != nil {
		return err
	}
	if err := m.parent.sendAndWait("start"); err != nil {
		return err
	}
	m.endSample = make(chan struct{})
	if !m.job.Idle {
		m.sampling.Go(m.sample)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.mallocs, m.cpu, m.began = mem.Mallocs, cpuTime(), time.Now()
	return nil
}

// stop stops the clock. It is called once the last commit has returned.
func (m *meter) stop() error {
	f := &m.stats
	f.Seconds = time.Since(m.began).Seconds()
	f.CPU = (cpuTime() - m.cpu).Seconds()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	events := m.job.Events * m.job.Partitions
	f.Allocs = float64(mem.Mallocs-m.mallocs) / float64(events)
	close(m.endSample)
	m.sampling.Wait()
	f.PeakRSS = peakRSS()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.transactions > 0 {
		f.Batch = float64(events) / float64(m.transactions)
	}
	f.Enqueued, f.Published = spreadOf(m.enqueued), spreadOf(m.published)
	if err := m.abandon(); err != nil {
		return err
	}
	return m.parent.sendAndWait("stop")
}

// abandon writes the profiles, if they are not written yet.
func (m *meter) abandon() error {
	finish := m.finish
	if m.finish = nil; finish == nil {
		return nil
	}
	return finish()
}

// committed counts a transaction.
func (m *meter) committed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transactions++
}

// timed records how long event n of a partition took, which is committed now.
func (m *meter) timed(n int64, enqueued time.Time, body []byte) error {
	now := time.Now()
	at, err := published(body)
	if err != nil || n < int64(m.job.Warm) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enqueued = append(m.enqueued, now.Sub(enqueued))
	m.published = append(m.published, now.Sub(at))
	return nil
}

// sample records the largest size of the heap, read every 10 ms.
func (m *meter) sample() {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics.Read(s)
		m.stats.PeakHeap = max(m.stats.PeakHeap, int64(s[0].Value.Uint64()))
		select {
		case <-tick.C:
		case <-m.endSample:
			return
		}
	}
}

func usage() syscall.Rusage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for bad arguments only
	return u
}

func cpuTime() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is in bytes. Linux counts in KiB, macOS in bytes.
func peakRSS() int64 {
	u := usage()
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}

// profile starts profiling unless prefix is empty. finish writes the profiles.
func profile(prefix string) (finish func() error, err error) {
	if prefix == "" {
		return nil, nil
	}
	file, err := os.Create(prefix + "cpu.prof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	runtime.SetBlockProfileRate(int(10 * time.Microsecond))
	return func() error {
		pprof.StopCPUProfile()
		all := file.Close()
		for _, name := range []string{"allocs", "block"} {
			f, err := os.Create(prefix + name + ".prof")
			if err == nil {
				err = errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
			}
			if err != nil {
				all = errors.Join(all, fmt.Errorf("profile %s: %w", name, err))
			}
		}
		return all
	}, nil
}

// spread is how a set of durations is spread, in milliseconds.
type spread struct {
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	P999   float64 `json:"p999_ms"`
	Max    float64 `json:"max_ms"`
	Events int     `json:"events"`
}

func spreadOf(list []time.Duration) spread {
	if len(list) == 0 {
		return spread{}
	}
	slices.Sort(list)
	at := func(part float64) float64 {
		i := min(len(list)-1, int(part*float64(len(list))))
		return float64(list[i]) / float64(time.Millisecond)
	}
	return spread{at(0.50), at(0.99), at(0.999), at(1), len(list)}
}
