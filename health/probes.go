package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// ProbesConfig holds what has a default. The zero value is ready to use.
type ProbesConfig struct {
	// LeaseFor is the consumer's. Default: 30 s.
	LeaseFor time.Duration
	// Recovery is how long a failure may last before the process is no longer
	// ready. Failures that follow each other within it, or within 2 minutes, are
	// one that lasts. Default: LeaseFor.
	Recovery time.Duration
	// StalledFor is how long a partition may be stalled before the process is no
	// longer ready. Default: 5 min.
	StalledFor time.Duration
	// Details adds the errors to what ServeHTTP answers. They may name hosts, users and
	// values of events, and anyone who reaches the probes reads them. Default: the answers
	// name partitions and their states, and the log has the errors.
	Details bool
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Probes answers the probes for one consumer: it is a [driver.Observer] and an
// [http.Handler]. It is safe for concurrent use.
type Probes struct {
	cfg   ProbesConfig
	state *partitionstate.Tracker
}

// NewProbes makes a handler of probes. A nil cfg takes every default.
func NewProbes(cfg *ProbesConfig) *Probes {
	var c ProbesConfig
	if cfg != nil {
		c = *cfg
	}
	c.LeaseFor = cmp.Or(c.LeaseFor, 30*time.Second)
	c.Recovery = cmp.Or(c.Recovery, c.LeaseFor)
	c.StalledFor = cmp.Or(c.StalledFor, 5*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Probes{cfg: c}
	p.state = partitionstate.New(&partitionstate.Config{FailureGap: p.failureGap(), Now: c.Now})
	return p
}

// Observe implements [driver.Observer].
func (p *Probes) Observe(o driver.Observation) { p.state.Observe(o) }

// failureGap is the longest time between two failures that count as one: the
// pause before another attempt, and a request that gets no answer, take time.
func (p *Probes) failureGap() time.Duration { return max(p.cfg.Recovery, 2*time.Minute) }

// Live returns nil if the engine moves, or an error that says what does not.
func (p *Probes) Live() error {
	now, partitions := p.cfg.Now(), p.state.State().Partitions
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		// The engine itself gives up a lease that was not renewed for LeaseFor.
		if age := now.Sub(partitions[id].Renewed); partitions[id].Held && age > 2*p.cfg.LeaseFor {
			return fmt.Errorf("partition %s: its lease was neither renewed nor released for %v", id, age.Truncate(time.Second))
		}
	}
	return nil
}

// Ready returns nil if the log, the database and the lease store answer and no
// partition has been stalled for too long, or an error that says what is wrong.
func (p *Probes) Ready() error {
	now, state := p.cfg.Now(), p.state.State()
	failures := []partitionstate.Failure{state.Failure}
	var stalled error
	for _, id := range slices.Sorted(maps.Keys(state.Partitions)) {
		held := state.Partitions[id]
		failures = append(failures, held.Failure)
		if held.Stall.Stalled() && now.Sub(held.Stall.Began) > p.cfg.StalledFor {
			stalled = cmp.Or(stalled, error(&fault{fmt.Sprintf("partition %s stalled", id), held.Stall.Err}))
		}
	}
	for _, f := range failures {
		if f.Failing() && f.Last.Sub(f.Began) > p.cfg.Recovery && now.Sub(f.Last) <= p.failureGap() {
			return &fault{fmt.Sprintf("failing for %v", now.Sub(f.Began).Truncate(time.Second)), f.Err}
		}
	}
	if !state.Answered {
		return errors.New("the lease store has not answered yet")
	}
	return stalled
}

// ServeHTTP answers GET /livez and /readyz with 200 or 503.
func (p *Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) { Combined{p}.ServeHTTP(w, r) }

// Combined answers the probes for several consumers of one process: it is live and
// ready if all are. Without any it is live, and not ready.
type Combined []*Probes

// ServeHTTP answers as [Probes.ServeHTTP] does, with the first error.
func (all Combined) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var probe func(*Probes) error
	switch r.URL.Path {
	case "/livez":
		probe = (*Probes).Live
	case "/readyz":
		probe = (*Probes).Ready
	default:
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	wrong := ""
	if len(all) == 0 && r.URL.Path == "/readyz" {
		wrong = "no consumer has started yet"
	}
	held := ""
	for _, p := range all {
		if err := probe(p); err != nil && wrong == "" {
			wrong = p.text(err)
		}
		held += p.heldUp()
	}
	if wrong != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprint(w, cmp.Or(wrong, "ok")+"\n", held)
}

// fault is a state that has an error as its cause.
type fault struct {
	state string
	cause error
}

func (f *fault) Error() string { return f.state + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// text returns an error of a probe as it is answered.
func (p *Probes) text(err error) string {
	var f *fault
	if !p.cfg.Details && errors.As(err, &f) {
		return f.state + ": see the log"
	}
	return oneLine(err)
}

// heldUp returns a line for each partition that is halted or stalled.
func (p *Probes) heldUp() string {
	var b strings.Builder
	partitions := p.state.State().Partitions
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		if err := partitions[id].Stopped; err != nil {
			fmt.Fprintln(&b, p.text(&fault{fmt.Sprintf("partition %s halted, operator action required", id), err}))
		}
		if err := partitions[id].Stall.Err; err != nil {
			fmt.Fprintln(&b, p.text(&fault{fmt.Sprintf("partition %s stalled", id), err}))
		}
	}
	return b.String()
}

func oneLine(err error) string { return strings.Join(strings.Fields(fmt.Sprint(err)), " ") }
