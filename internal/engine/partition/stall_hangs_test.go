package partition_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/internal/partitionstate"
	"github.com/sluice-go/sluice/sluicetest"
)

// hang is a request or a call that gets no answer for minutes, in the deliveries where it can.
type hang struct {
	kind       string // see noAnswer
	deliveries []string
	late       bool     // it begins when the partition is at work, not before
	bodies     []string // of the events that wait then; nil: good ones
	obeys      string   // what is reported if each request ends by the end of its context; empty: none does
	deaf       string   // what is reported if it does not return; empty: it ends always
}

var (
	transactional = "transactional"
	inBatches     = "batches"
	atLeastOnce   = "at least once"
	replayed      = "replay"
	stored        = []string{transactional, inBatches, atLeastOnce}
	inTurn        = []string{transactional, inBatches}
	everyDelivery = []string{transactional, inBatches, atLeastOnce, replayed}
)

// hangs are those that docs/operations.md lists, and the requests that a partition needs.
var hangs = []hang{
	{kind: "describe", deliveries: everyDelivery, late: true, obeys: "describe topic: no answer within", deaf: "request to describe topic has not returned"},
	{kind: "seek", deliveries: everyDelivery, obeys: "seek earliest: no answer within", deaf: "request to seek earliest has not returned"},
	{kind: "claim", deliveries: stored, obeys: "claim checkpoint: no answer within", deaf: "request to claim checkpoint has not returned"},
	{kind: "begin", deliveries: stored, obeys: "store start: ", deaf: "request to store start has not returned"},
	{kind: "open", deliveries: everyDelivery, obeys: "open log: no answer within", deaf: "request to open log has not returned"},
	{kind: "due", deliveries: stored, deaf: "request to look for redrives has not returned"},
	{kind: "parked", deliveries: []string{atLeastOnce}, obeys: "look for dead letters: no answer within", deaf: "request to look for dead letters has not returned"},
	{kind: "read", deliveries: everyDelivery, late: true, obeys: "no event done for", deaf: "reader of the log has not ended"},
	{kind: "handler", deliveries: inTurn, late: true, deaf: "handler has not returned"},
	{kind: "handler", deliveries: []string{atLeastOnce}, late: true, deaf: "records function has not returned"},
	{kind: "handler", deliveries: []string{replayed}, late: true, deaf: "replayer has not returned"},
	{kind: "filter", deliveries: inTurn, late: true, deaf: "filter has not returned"},
	{kind: "filter", deliveries: []string{atLeastOnce}, late: true, deaf: "records function has not returned"},
	{kind: "filter", deliveries: []string{replayed}, late: true, deaf: "filter has not returned"},
	{kind: "commit", deliveries: []string{transactional}, late: true, deaf: "commit has not returned"},
	{kind: "record", deliveries: inTurn, late: true, bodies: []string{"bad"}, obeys: "record attempt: no answer within", deaf: "request to record attempt has not returned"},
	{kind: "advance", deliveries: []string{inBatches}, late: true, obeys: "no event done for", deaf: "commit has not returned"},
	{kind: "advance", deliveries: []string{atLeastOnce}, late: true, obeys: "checkpoint has not been stored", deaf: "request to store checkpoint or dead letters has not returned"},
	{kind: "park", deliveries: []string{inBatches}, late: true, bodies: []string{"reject"}, obeys: "store dead letters: ", deaf: "commit has not returned"},
	{kind: "park", deliveries: []string{atLeastOnce}, late: true, bodies: []string{"reject"}, obeys: "store dead letters: ", deaf: "request to store checkpoint or dead letters has not returned"},
	{kind: "memory", deliveries: []string{transactional, atLeastOnce}, late: true, deaf: "a large event has waited for memory"},
	{kind: "sink", deliveries: []string{atLeastOnce}, late: true, deaf: "sink has completed no record"},
	{kind: "submit", deliveries: []string{atLeastOnce}, late: true, deaf: "sink has completed no record"},
	{kind: "key", deliveries: []string{atLeastOnce}, late: true, deaf: "records function has not returned"},
	{kind: "fails", deliveries: inTurn, late: true, obeys: "no event "},
	{kind: "fails", deliveries: []string{atLeastOnce}, late: true, obeys: "no event succeeds"},
	{kind: "waits", deliveries: stored, late: true, obeys: "no event done for"},
	{kind: "hook assigned", deliveries: everyDelivery, deaf: "hook Assigned has not returned"},
	{kind: "hook batch", deliveries: inTurn, late: true, deaf: "hook Batch has not returned"},
	{kind: "hook renewed", deliveries: everyDelivery, late: true, deaf: "hook Renewed or Error has not returned"},
	{kind: "copy", deliveries: stored, late: true, bodies: []string{"reject"}, obeys: "CopyDeadLetters has not returned", deaf: "CopyDeadLetters has not returned"},
	{kind: "caught up", deliveries: []string{replayed}, deaf: "replayer has not returned"},
}

// TestEveryHangIsOneStall: whatever does not answer is reported as a stall that names it, in the
// log, the metric and the probe, which lasts until it answers and ends once.
func TestEveryHangIsOneStall(t *testing.T) {
	for _, h := range hangs {
		for _, delivery := range h.deliveries {
			for _, deaf := range []bool{false, true} {
				want, how := h.obeys, "ends by its time limit"
				if deaf {
					want, how = h.deaf, "does not return"
				}
				if want == "" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", h.kind, delivery, how), func(t *testing.T) {
					stage(t, 1, func(s *scene) { s.hangs(h, delivery, deaf, want) })
				})
			}
		}
	}
}

// hangs runs a consumer while something hangs for five minutes, and checks what is reported.
func (s *scene) hangs(h hang, delivery string, deaf bool, want string) {
	u := &noAnswer{}
	w := newStallReports(s)
	s.memory = sluice.NewMemory(16 << 20)
	s.Send("0", "good", "good")
	began, end := time.Now(), func() {}
	if !h.late {
		end = u.begin(h.kind, deaf)
	}
	c, ran := s.consumeWith(u, delivery, w)
	if h.late {
		time.Sleep(15 * time.Second)
		began, end = time.Now(), u.begin(h.kind, deaf)
		s.takeMemory(u, h.kind)
		s.Send("0", cmpOr(h.bodies, "good")...) // a Read that waits returns it
		time.Sleep(time.Second)
		s.Send("0", slices.Repeat([]string{"good"}, 40)...)
	}
	w.watch(began.Add(5 * time.Minute))
	end()
	ended := time.Now()
	time.Sleep(2 * time.Minute)
	w.check(began, ended, want)
	if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
		s.T.Error(err)
	}
}

func cmpOr(list []string, or string) []string {
	if list == nil {
		return []string{or}
	}
	return list
}

// consumeWith runs a consumer each of whose parts can hang.
func (s *scene) consumeWith(u *noAnswer, name string, observer driver.Observer) (*sluice.Consumer, chan error) {
	call := func(ctx context.Context, kinds ...string) error {
		for _, kind := range kinds {
			if err := u.ask(ctx, kind); err != nil {
				return err
			}
		}
		return nil
	}
	handle := func(ctx context.Context, e *sluice.Event) error {
		switch err := call(ctx, "handler"); {
		case err != nil:
			return err
		case u.hangs("fails") && name != atLeastOnce:
			return errors.New("no service")
		case u.hangs("memory"):
			ctx, _ = memory.Begin(ctx)
			return memory.Grow(ctx, largeBody)
		case u.hangs("waits"):
			return driver.RetryAfter(errors.New("quota"), 3*time.Second)
		case string(e.Body) == "bad":
			return errors.New("bad event")
		case string(e.Body) == "reject":
			return driver.Reject(errors.New("rejected event"))
		}
		return nil
	}
	store := silentStore{s.Store, u}
	var delivery sluice.Delivery
	switch name {
	case transactional:
		delivery = sluice.Transactional(store, sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if err := handle(ctx, e); err != nil {
				return err
			}
			return tx.Insert("rows", e.Sequence)
		}))
	case inBatches:
		delivery = sluice.Batches(store, func(ctx context.Context, b sluice.Batch) error {
			for i, e := range b.Events {
				if err := handle(ctx, e); err != nil {
					return &driver.EventError{Index: i, Err: err}
				}
			}
			return nil
		}, nil)
	case atLeastOnce:
		records := func(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			return []*sluice.Event{e}, handle(ctx, e)
		}
		key := func(e *sluice.Event) string { _ = call(s.T.Context(), "key"); return "" }
		delivery = sluice.AtLeastOnce(store, records, sluice.Keyed(slowSink{s.T, u}, key), nil)
	default:
		apply := func(ctx context.Context, b sluice.Batch) error { return handle(ctx, b.Events[0]) }
		caughtUp := func(ctx context.Context, _ sluice.Lease) error { return call(ctx, "caught up") }
		delivery = sluice.Replay(sluice.Replayer{Apply: apply, CaughtUp: caughtUp})
	}
	cfg := sluice.Config{
		Observer: observer, Memory: s.memory, RetryLater: []time.Duration{},
		Filter: func(*sluice.Event) bool { _ = call(s.T.Context(), "filter"); return true },
		Hooks: sluice.Hooks{
			Assigned: func(ctx context.Context, _ sluice.Lease, _ sluice.Checkpoint) error {
				return call(ctx, "hook assigned")
			},
			Renewed: func(ctx context.Context, _ sluice.Lease) error { return call(ctx, "hook renewed") },
		},
	}
	if name != atLeastOnce && name != replayed {
		cfg.Hooks.Batch = func(ctx context.Context, _ sluice.Batch) error { return call(ctx, "hook batch") }
	}
	if name != replayed {
		cfg.CopyDeadLetters = func(ctx context.Context, _ []sluice.DeadLetter) error { return call(ctx, "copy") }
	}
	leases := s.leases
	if leases == nil {
		leases = s.Leases
	}
	c := enginetest.Must(sluice.New(silentHub{s.Hub, u}, leases, delivery, &cfg))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	return c, ran
}

// largeBody is more than half of the memory that partitions share.
const largeBody = 10 << 20

// takeMemory has another consumer take all memory while it hangs.
func (s *scene) takeMemory(u *noAnswer, kind string) {
	if kind != "memory" {
		return
	}
	hub := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "other", Name: "$Default"}, 1)
	hub.Append("0", sluicetest.Bodies("large")...)
	_, stop := enginetest.Run(s.T, hub, nil, sluice.Replay(sluice.Replayer{Apply: func(ctx context.Context, _ sluice.Batch) error {
		defer func() { memory.FromContext(ctx).Collect().Release() }()
		ctx, _ = memory.Begin(ctx)
		return errors.Join(memory.Grow(ctx, largeBody), memory.Grow(ctx, largeBody), u.ask(ctx, kind))
	}}), sluice.AllPartitions, sluice.Config{Memory: s.memory})
	s.T.Cleanup(stop)
	time.Sleep(5 * time.Second)
}

// slowSink is a sink whose records, or whose Submit, can hang.
type slowSink struct {
	t *testing.T
	u *noAnswer
}

func (k slowSink) Submit(ctx context.Context, _ *sluice.Event, done func(driver.WriteResult)) {
	_ = k.u.ask(ctx, "submit")
	go func() {
		err := k.u.ask(ctx, "sink")
		if k.u.hangs("fails") {
			err = errors.New("no service")
		}
		done(driver.WriteResult{Err: err})
	}()
}

// stallReports looks where a stall is reported.
type stallReports struct {
	*scene
	driver.Observer
	probes *health.Probes
	state  *partitionstate.Tracker // what metrics, terminal and dashboard read
}

func newStallReports(s *scene) *stallReports {
	w := &stallReports{scene: s, probes: health.NewProbes(nil), state: partitionstate.New(nil)}
	w.Observer = driver.Observers(s, w.state, w.probes)
	return w
}

func (w *stallReports) Observe(o driver.Observation) { w.Observer.Observe(o) }

// now returns where a stall is reported now.
func (w *stallReports) now() (gauge, probe bool) {
	stall := w.state.State().Partitions["0"].Stall
	gauge = stall.Stalled()
	r := httptest.NewRecorder()
	w.probes.ServeHTTP(r, httptest.NewRequestWithContext(w.T.Context(), http.MethodGet, "/readyz", http.NoBody))
	return gauge, strings.Contains(r.Body.String(), "partition 0 stalled")
}

// watch checks until some time that a stall, once it is reported, stays so everywhere.
func (w *stallReports) watch(until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		reported := w.Count(driver.KindStalled) > 0
		if gauge, probe := w.now(); gauge != reported || probe != reported {
			w.T.Errorf("%v before its end: reported %v, in the metric %v, in the probe %v; stalls %q, ends %v", time.Until(until), reported, gauge, probe, w.Stalls(), w.Observations(driver.KindResumed))
			return
		}
	}
}

// check checks that the stall was reported in time and by its name, and has ended once.
func (w *stallReports) check(began, ended time.Time, want string) {
	stalls, resumed := w.Observations(driver.KindStalled), w.Observations(driver.KindResumed)
	if len(stalls) == 0 || len(resumed) != 1 {
		w.T.Errorf("stalls %q, %d ends, want one; failures %q", w.Stalls(), len(resumed), w.Errors(driver.KindFailed))
		return
	}
	if after := stalls[0].Time.Sub(began); after < 29*time.Second || after > 45*time.Second {
		w.T.Errorf("reported after %v: %v", after, stalls[0].Err)
	}
	if !strings.Contains(stalls[0].Err.Error(), want) {
		w.T.Errorf("reported\n%s\nwant %q in the first", strings.Join(w.Stalls(), "\n"), want)
	}
	if after := resumed[0].Time.Sub(ended); after < 0 || after > 45*time.Second {
		w.T.Errorf("ended %v after its cause", after)
	}
	if gauge, probe := w.now(); gauge || probe {
		w.T.Errorf("after its end it is in the metric %v, in the probe %v", gauge, probe)
	}
}

// silentLeases is a lease store that can go silent.
type silentLeases struct {
	*enginetest.Ledger
	u *noAnswer
}

func (l silentLeases) List(ctx context.Context, g sluice.Group) ([]driver.LeaseInfo, error) {
	return answered(ctx, l.u, "leases", func() ([]driver.LeaseInfo, error) { return l.Ledger.List(ctx, g) })
}

func (l silentLeases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	_, err := answered(ctx, l.u, "leases", func() (none struct{}, err error) { return none, l.Ledger.Renew(ctx, lease, ttl) })
	return err
}

func (l silentLeases) RenewAll(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
	_, err := answered(ctx, l.u, "leases", func() (none struct{}, err error) { return none, l.Ledger.RenewAll(ctx, leases, ttl) })
	return err
}

// TestLeaseStoreThatDoesNotAnswer: while the lease store does not answer, the partition is lost
// when its lease has expired, the process is not ready, and it goes on when the store answers.
func TestLeaseStoreThatDoesNotAnswer(t *testing.T) {
	for _, name := range everyDelivery {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				u := &noAnswer{}
				w := newStallReports(s)
				s.leases = silentLeases{s.Leases, u}
				c, ran := s.consumeWith(u, name, w)
				time.Sleep(15 * time.Second)
				end := u.begin("leases", false)
				began := time.Now()
				time.Sleep(5 * time.Minute)
				lost := s.Observations(driver.KindLost)
				if len(lost) != 1 || lost[0].Time.Sub(began) > 31*time.Second || !errors.Is(lost[0].Err, driver.ErrLeaseExpired) {
					s.T.Errorf("lost %v", lost)
				}
				failed := s.Observations(driver.KindFailed)
				if len(failed) == 0 || failed[0].Time.Sub(began) > 25*time.Second || !strings.Contains(failed[0].Err.Error(), "lease") {
					s.T.Errorf("failed %v", s.Errors(driver.KindFailed))
				}
				if err := w.probes.Ready(); err == nil {
					s.T.Error("ready")
				}
				end()
				s.Send("0", "good")
				time.Sleep(time.Minute)
				if s.Count(driver.KindAcquired) != 2 || w.probes.Ready() != nil {
					s.T.Errorf("acquired %d times, ready: %v", s.Count(driver.KindAcquired), w.probes.Ready())
				}
				if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
					s.T.Error(err)
				}
			})
		})
	}
}
