package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

const truncationSeeds = 300 // by default

// TestTruncations runs small worlds whose log loses events again and again and gives their numbers
// to others, while processes are killed and an operator goes on with `checkpoints set`.
// SLUICE_SIM_TRUNCATIONS sets how many seeds run; SLUICE_SIM_TRUNCATION runs one.
func TestTruncations(t *testing.T) {
	first, seeds := need.Seed(t), uint64(fewer(truncationSeeds))
	if text := os.Getenv("SLUICE_SIM_TRUNCATIONS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	untilCaught := os.Getenv("SLUICE_SIM_UNTIL_CAUGHT") != ""
	if untilCaught {
		first = 1
	}
	if text := os.Getenv("SLUICE_SIM_TRUNCATION"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, seeds = n, 1
	}
	total := map[string]int{}
	for seed := first; seed < first+seeds; seed++ {
		var w *truncated
		synctest.Test(t, func(t *testing.T) { w = truncatedWorld(t, seed) })
		for what, n := range w.counts {
			total[what] += n
		}
		if len(w.violations) == 0 {
			continue
		}
		if untilCaught {
			t.Fatalf("caught after %d seeds: %s", seed-first+1, w.violations[0])
		}
		t.Errorf("seed %d: %s\nrepeat: SLUICE_SIM_TRUNCATION=%d go test ./proof/sim -run TestTruncations", seed, strings.Join(w.violations, "\n"), seed)
	}
	t.Logf("%d seeds from %d: %v", seeds, first, total)
	for _, what := range []string{"loss of events that were done", "loss of events that were not done", "loss of dead letters", "loss of nothing", "halt", "checkpoint set", "death", "dead letter set aside"} {
		if total[what] == 0 && seeds >= truncationSeeds {
			t.Errorf("%s: did not happen", what)
		}
	}
}

// truncated is a world of one partition. Each event has a body of its own.
type truncated struct {
	t      *testing.T
	rng    *rand.Rand
	group  sluice.Group
	hub    *sluicetest.Hub
	store  *sluicetest.Store
	leases *sluicetest.Leases
	tx     bool // Transactional; else AtLeastOnce

	mu         sync.Mutex
	log        map[int64]string // the events that the log has
	end        int64            // the number after its last
	effects    map[string]int   // of AtLeastOnce, by body
	dead       map[string]bool  // bodies of events that were dead letters at some time
	mended     bool             // the events that are rejected take effect
	halted     *driver.TruncatedError
	passed     int64            // the highest number that was done since the last checkpoint that was set
	lostFrom   int64            // the lowest number lost since then
	lost       map[string]int64 // the numbers of lost events, until their loss is reported
	counts     map[string]int
	violations []string
}

func truncatedWorld(t *testing.T, seed uint64) *truncated {
	w := &truncated{
		t: t, rng: rand.New(rand.NewPCG(seed, 11)), group: sluice.Group{Namespace: "sim", Topic: "flights", Name: "g"},
		store: &sluicetest.Store{}, leases: &sluicetest.Leases{}, log: map[int64]string{}, effects: map[string]int{},
		dead: map[string]bool{}, counts: map[string]int{}, passed: driver.Origin.Sequence,
		lost: map[string]int64{}, lostFrom: math.MaxInt64,
	}
	w.tx = w.rng.IntN(2) == 0
	w.hub = sluicetest.NewHub(w.group, 1)
	w.hub.Sparse()
	w.append()
	stop := w.start(0)
	for n := range 30 {
		switch w.rng.IntN(6) {
		case 0, 1:
			w.append()
		case 2:
			w.truncate()
		case 3:
			stop()
			w.count("death")
			if w.rng.IntN(2) == 0 {
				w.truncate()
			}
			stop = w.start(n + 1)
		default:
			time.Sleep(time.Duration(w.rng.IntN(20_000)) * time.Millisecond)
		}
		synctest.Wait()
		w.look()
		w.operate()
	}
	for range 10 {
		w.append() // so that each lost number is that of another event
		time.Sleep(time.Minute)
		w.look()
		w.operate()
	}
	w.mu.Lock()
	w.mended = true
	w.mu.Unlock()
	_, err := w.store.Redrive(t.Context(), w.group, sluice.DeadLetterFilter{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Minute)
	stop()
	w.check()
	return w
}

func (w *truncated) count(what string) { w.counts[what]++ }

func (w *truncated) violation(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// append appends some events, and takes numbers without an event.
func (w *truncated) append() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 1 + w.rng.IntN(6) {
		body := ""
		if kind := w.rng.IntN(5); kind > 0 {
			body = fmt.Sprintf("%s %d", []string{"good", "good", "good", "reject"}[kind-1], w.counts["event"])
			w.log[w.end] = body
		}
		w.hub.Append("0", &sluice.Event{Body: []byte(body), Control: body == ""})
		w.counts["event"]++
		w.end++
	}
}

// start starts a process. stop kills it.
func (w *truncated) start(n int) (stop func()) {
	consumer, err := sluice.New(w.hub, w.leases, w.delivery(), &sluice.Config{
		Owner: fmt.Sprint("p", n), Logger: slog.New(slog.DiscardHandler), Observer: w, MaxBatch: 3, RetryMin: 50 * time.Millisecond, RetryMax: time.Second, RedriveEvery: 5 * time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = consumer.Run(ctx)
	}()
	return func() {
		kill()
		<-ended
	}
}

func (w *truncated) delivery() sluice.Delivery {
	if w.tx {
		return sluice.Transactional(w.store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if err := w.refuses(e); err != nil {
				return err
			}
			return tx.Insert("bodies", string(e.Body))
		}))
	}
	return sluice.AtLeastOnce[*sluice.Event](w.store, sluice.EventAsRecord, w, &sluice.AtLeastOnceConfig{MaxEvents: 8, CheckpointEvery: time.Second})
}

func (w *truncated) refuses(e *sluice.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(string(e.Body), "reject") && !w.mended {
		return driver.Reject(errors.New(string(e.Body)))
	}
	return nil
}

// Submit implements [driver.Sink]. Some events take much longer than those after them.
func (w *truncated) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	takes := 10 * time.Millisecond
	if e.Sequence%4 == 0 {
		takes = 7 * time.Second
	}
	go func() {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			done(driver.WriteResult{Err: ctx.Err()})
			return
		}
		err := w.refuses(e)
		if err == nil {
			w.mu.Lock()
			w.effects[string(e.Body)]++
			w.mu.Unlock()
		}
		done(driver.WriteResult{Err: err})
	}()
}

// Observe implements [driver.Observer].
func (w *truncated) Observe(o driver.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case o.Kind == driver.KindHalted:
		w.counts["halt"]++
		if !errors.As(o.Err, &w.halted) {
			w.violation("halted: %v", o.Err)
		}
	case errors.As(o.Err, new(*driver.LostDeadLettersError)):
		w.counts["dead letter set aside"]++
	}
}

// look notes what is done and what is dead.
func (w *truncated) look() {
	list, err := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list {
		w.dead[list[i].Error] = true // the error of a rejected event is its body
	}
	if c := w.checkpoint(); c.Position != driver.Unset {
		w.passed = max(w.passed, c.Position.Sequence)
		for _, r := range c.Done {
			w.passed = max(w.passed, r.Last)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.halted; h != nil && (w.hasEvents(h.End, w.lostFrom) || h.Position.Sequence < w.lostFrom || w.tx && h.Position.Sequence > w.passed) {
		w.violation("the log lost what is from %d on, and what is up to %d was done; reported: %v", w.lostFrom, w.passed, h)
	}
}

// hasEvents reports whether the log has events of some numbers. The lock is held.
func (w *truncated) hasEvents(from, to int64) bool {
	for n := from; n < min(to, w.end); n++ {
		if w.log[n] != "" {
			return true
		}
	}
	return false
}

func (w *truncated) checkpoint() sluice.Checkpoint {
	list, err := w.store.Read(context.Background(), w.group)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(list) == 0 {
		return sluice.Checkpoint{Position: driver.Unset}
	}
	return list[0]
}

// truncate has the log lose its last numbers, sometimes none.
func (w *truncated) truncate() {
	synctest.Wait()
	w.look()
	w.mu.Lock()
	end := max(0, w.end-w.rng.Int64N(6))
	what := "loss of nothing"
	for n := end; n < w.end; n++ {
		switch body := w.log[n]; {
		case n <= w.passed:
			what = "loss of events that were done"
		case body != "" && what == "loss of nothing":
			what = "loss of events that were not done"
		}
		if w.dead[w.log[n]] {
			w.counts["loss of dead letters"]++
		}
		if w.log[n] != "" {
			w.lost[w.log[n]] = n
		}
		delete(w.log, n)
		w.lostFrom = min(w.lostFrom, end)
	}
	w.counts[what]++
	w.end = end
	w.mu.Unlock()
	w.hub.Truncate("0", end)
	if w.rng.IntN(3) > 0 {
		w.append()
	}
}

// operate goes on after a halt, where the log says that it lost what was done.
func (w *truncated) operate() {
	w.mu.Lock()
	halted := w.halted
	w.mu.Unlock()
	if halted == nil {
		return
	}
	time.Sleep(30 * time.Second)
	synctest.Wait()
	w.mu.Lock()
	halted, w.halted, w.lostFrom = w.halted, nil, math.MaxInt64
	w.mu.Unlock()
	w.look()
	for body, n := range w.lost {
		if n >= halted.End && n <= halted.Position.Sequence {
			delete(w.lost, body)
		}
	}
	for n := halted.End; n <= halted.Position.Sequence; n++ {
		if w.effectsOf(w.log[n]) > 0 {
			w.violation("the log lost %d to %d, says the report, and it has %q, which took effect", halted.End, halted.Position.Sequence, w.log[n])
		}
	}
	ctx := context.Background()
	topic, err := w.hub.Describe(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	to, err := w.hub.Seek(ctx, "0", sluice.FromSequence(halted.End-halted.Before), 0)
	if err != nil {
		to = sluice.Position{Sequence: halted.End - halted.Before - 1}
	}
	if _, err := w.store.Reset(ctx, w.group, "0", topic.Incarnation, to, driver.HowSet); err != nil {
		w.t.Fatal(err)
	}
	w.passed = to.Sequence
	w.count("checkpoint set")
	time.Sleep(30 * time.Second)
	w.look()
}

// effectsOf returns how often an event took effect.
func (w *truncated) effectsOf(body string) (n int) {
	if !w.tx {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.effects[body]
	}
	for _, row := range w.store.Rows("bodies") {
		if row == body {
			n++
		}
	}
	return n
}

// check checks at the end that the events that the log has, and all dead letters, have taken
// effect: exactly once, or at least once.
func (w *truncated) check() {
	want := map[string]bool{}
	for _, body := range w.log {
		want[body] = true
	}
	for body := range w.dead {
		want[body] = true
	}
	for body := range want {
		if n := w.effectsOf(body); n == 0 || n > 1 && w.tx {
			w.violation("%q took effect %d times (dead letter at some time: %v, transactional: %v)", body, n, w.dead[body], w.tx)
		}
	}
	for body, n := range w.lost {
		if w.tx && w.effectsOf(body) > 0 && !w.dead[body] {
			w.violation("%q took effect, the log lost it as %d, and no report said so", body, n)
		}
	}
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	for i := range list {
		w.violation("a dead letter is left: event %d, %s", list[i].Event.Sequence, list[i].Error)
	}
	if at := w.checkpoint().Position.Sequence; at != w.end-1 {
		w.violation("the checkpoint is at %d, and the log ends at %d", at, w.end-1)
	}
	w.audit()
	slices.Sort(w.violations)
}

// audit checks that the audit finds nothing, and then one event whose effect is taken from its
// books.
func (w *truncated) audit() {
	b := &books{checkpoints: map[string]sluice.Checkpoint{"0": w.checkpoint()}, entries: map[string][]audit.Entry{}}
	for _, n := range slices.Sorted(maps.Keys(w.log)) {
		if w.log[n] != "" && w.effectsOf(w.log[n]) > 0 {
			b.entries["0"] = append(b.entries["0"], audit.Entry{Sequence: n})
		}
	}
	look := func(want ...int64) {
		r, err := audit.Run(context.Background(), audited{w.hub, 1}, b, w.group, nil)
		if err != nil {
			w.violation("the audit ends: %v", err)
		} else if got := lostOf(r, "0"); !slices.Equal(got, want) || len(r.Faults) != len(want) || r.Exact() != (want == nil) {
			w.violation("the audit says %s %v, want %v lost", r.Headline(), r.Faults, want)
		}
	}
	look()
	if n := len(b.entries["0"]); n > 0 && b.entries["0"][n-1].Sequence > b.checkpoints["0"].Began.After {
		last := b.entries["0"][n-1].Sequence
		b.entries["0"] = b.entries["0"][:n-1]
		look(last)
	}
}
