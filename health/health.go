// Package health answers Kubernetes' probes for a consumer.
//
//	probes := health.New(nil)
//	// sluice.Config{Observer: sluice.Observers(probes, …)}
//	http.Handle("/", probes) // GET /livez, GET /readyz
//
// A process is live unless the engine has stopped moving: a lease that it holds
// was neither renewed nor given up for twice as long as it lasts. A restart
// helps then, and nothing else does.
//
// It is ready once its lease store has answered, whether or not there was a
// partition to take: a new process may have to wait for those of one that is to
// go when this one is ready. It is no longer ready while something keeps
// failing for longer than [Config.Recovery]. A partition that waits for a
// person does not make the process unready: its other partitions go on, and a
// restart would not help. It shows in the answer's text.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// LeaseFor is the consumer's. Default: 30 s.
	LeaseFor time.Duration
	// Recovery is how long a failure may last before the process is no longer
	// ready. Failures that follow each other within it, or within 2 minutes, are
	// one that lasts. Default: LeaseFor.
	Recovery time.Duration
	// Now tells the time. Default: time.Now.
	Now func() time.Time
}

// Health is a [sluice.Observer] and an [http.Handler]. It is safe for
// concurrent use.
type Health struct {
	cfg Config

	mu      sync.Mutex
	leases  map[string]time.Time // when a held one was taken or last renewed
	stopped map[string]error
	failing map[string]failure // by partition, "" for the consumer
	worked  bool               // the lease store has answered
}

// failure is what fails again and again.
type failure struct {
	since, last time.Time
	err         error // the last one
}

// New makes a handler of probes.
func New(cfg *Config) *Health {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Recovery = cmp.Or(c.Recovery, c.LeaseFor)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Health{cfg: c, leases: map[string]time.Time{}, stopped: map[string]error{}, failing: map[string]failure{}}
}

// Observe implements [sluice.Observer].
func (h *Health) Observe(o sluice.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o.Kind {
	case sluice.KindListed:
		h.worked = true
		delete(h.failing, "")
	case sluice.KindAcquired, sluice.KindRenewed:
		h.leases[o.Partition] = h.cfg.Now()
		h.worked = true
	case sluice.KindLost, sluice.KindReleased:
		// What cost the lease is not over with it.
		if f, ok := h.failing[o.Partition]; ok && o.Kind == sluice.KindLost {
			all, already := h.failing[""]
			if !already {
				all = f
			}
			if f.since.Before(all.since) {
				all.since = f.since
			}
			h.failing[""] = all
		}
		delete(h.leases, o.Partition)
		delete(h.stopped, o.Partition)
		delete(h.failing, o.Partition)
	case sluice.KindStopped:
		h.stopped[o.Partition] = o.Err
	case sluice.KindOpened:
		delete(h.stopped, o.Partition)
		delete(h.failing, o.Partition)
	case sluice.KindCommitted:
		delete(h.failing, o.Partition)
	case sluice.KindFailed:
		now := h.cfg.Now()
		f, already := h.failing[o.Partition]
		if !already || now.Sub(f.last) > h.gap() {
			f.since = now
		}
		f.last, f.err = now, o.Err
		h.failing[o.Partition] = f
	}
}

// gap is the longest between two failures that are one. Pauses before another
// attempt, and requests that get no answer, take their time.
func (h *Health) gap() time.Duration { return max(h.cfg.Recovery, 2*time.Minute) }

// Live tells whether the engine moves; the error says what does not.
func (h *Health) Live() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	for _, p := range slices.Sorted(maps.Keys(h.leases)) {
		// The engine itself gives a lease up when it has lasted LeaseFor.
		if age := now.Sub(h.leases[p]); age > 2*h.cfg.LeaseFor {
			return fmt.Errorf("partition %s: its lease was neither renewed nor given up for %v", p, age.Truncate(time.Second))
		}
	}
	return nil
}

// Ready tells whether what the consumer stands on answers; the error says what
// does not.
func (h *Health) Ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.cfg.Now()
	for _, p := range slices.Sorted(maps.Keys(h.failing)) {
		f := h.failing[p]
		if f.last.Sub(f.since) > h.cfg.Recovery && now.Sub(f.last) <= h.gap() {
			return fmt.Errorf("failing for %v: %w", now.Sub(f.since).Truncate(time.Second), f.err)
		}
	}
	if !h.worked {
		return errors.New("the lease store has not answered yet")
	}
	return nil
}

// ServeHTTP answers GET /livez and /readyz with 200 or 503.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { Together{h}.ServeHTTP(w, r) }

// Together answers for the consumers of one process: it is live and ready if
// all are. Before there is one it is live, and not ready.
type Together []*Health

// ServeHTTP answers as [Health.ServeHTTP] does, for the first that is not well.
func (all Together) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var probe func(*Health) error
	switch r.URL.Path {
	case "/livez":
		probe = (*Health).Live
	case "/readyz":
		probe = (*Health).Ready
	default:
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a probe is read", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var fault error
	if len(all) == 0 && r.URL.Path == "/readyz" {
		fault = errors.New("no consumer has begun yet")
	}
	remarks := ""
	for _, h := range all {
		fault = cmp.Or(fault, probe(h))
		remarks += h.remarks()
	}
	text := "ok\n"
	if fault != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = oneLine(fault) + "\n"
	}
	fmt.Fprint(w, text, remarks)
}

// remarks are a line for each partition that waits for a person.
func (h *Health) remarks() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(h.stopped)) {
		fmt.Fprintf(&b, "partition %s waits for a person: %s\n", p, oneLine(h.stopped[p]))
	}
	return b.String()
}

func oneLine(err error) string { return strings.Join(strings.Fields(fmt.Sprint(err)), " ") }
