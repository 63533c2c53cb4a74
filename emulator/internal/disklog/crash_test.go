package disklog

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

// appendTogether appends batches at the same time, so that they share writes, and
// returns their requests.
func appendTogether(l *Log, batches [][]Message) []*appendRequest {
	var rs []*appendRequest
	l.writeLock <- struct{}{}
	for _, b := range batches {
		r := &appendRequest{msgs: b, done: make(chan struct{})}
		for i := range b {
			r.size += recordSize(&b[i])
		}
		l.queue = append(l.queue, r)
		rs = append(rs, r)
	}
	for len(l.queue) > 0 {
		l.commit()
	}
	<-l.writeLock
	for _, r := range rs {
		<-r.done
	}
	return rs
}

var crashes = flag.Uint64("crashes", 100, "seeds of TestCrash per kind of fault")

// TestCrash simulates every kind of failure while a log is written, trimmed and
// reopened. Everything acknowledged must be in the log afterwards, in its place,
// and apart from that only whole batches of the last write, if that failed.
func TestCrash(t *testing.T) {
	for _, faults := range []string{"kill", "power", "errors", "errors and power"} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			for seed := range *crashes {
				if err := runCrashes(seed, faults); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func runCrashes(seed uint64, faults string) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	store := newMachine(rng)
	config, err := (&Config{SegmentBytes: 1 + rng.Int64N(20_000), Now: fixedTime}).withDefaults(store.path())
	if err != nil {
		return err
	}
	m := &model{}
	var doubtful [][]Message
	for life := range 4 {
		l, err := openStorage(store, config)
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if err := m.resolve(l, doubtful); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if err := m.learn(l, m.first, fixedTime(), fixedTime()); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if err := m.check(l, rng); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if faults != "errors" && faults != "kill" {
			store.cutIn = 1 + rng.IntN(60)
		}
		if faults != "power" && faults != "kill" {
			store.fault = func(string) error {
				if rng.IntN(15) == 0 {
					return someErrno(rng)
				}
				return nil
			}
		}
		if doubtful, err = m.run(l, store, rng); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if rng.IntN(4) == 0 && !store.unpowered {
			store.fault = nil
			if err := l.Close(); err != nil && !store.unpowered {
				return fmt.Errorf("life %d: %w", life, err)
			}
		}
		store.restart()
	}
	return nil
}

// run works on the log until it or the machine fails, and returns the batches that
// may or may not be in the log.
func (m *model) run(l *Log, store *machine, rng *rand.Rand) (doubtful [][]Message, err error) {
	for range rng.IntN(40) {
		if rng.IntN(8) == 0 {
			before := m.first + rng.Int64N(20)
			err := l.Trim(before)
			if err == nil {
				m.first = max(m.first, min(before, m.next()))
			}
			// A trim that failed may have happened.
			m.first = max(m.first, l.Info().First, l.savedState.First)
			if store.unpowered {
				return nil, nil
			}
			continue
		}
		var batches [][]Message
		for range 1 + rng.IntN(3) {
			if b := randomBatch(rng); len(b) > 0 {
				batches = append(batches, b)
			}
		}
		before := m.next()
		for _, r := range appendTogether(l, batches) {
			switch {
			case r.err == nil && (r.first != m.next() || doubtful != nil):
				return nil, fmt.Errorf("acknowledged as %d, want %d; %d batches doubtful", r.first, m.next(), len(doubtful))
			case r.err == nil:
				m.append(r.msgs)
			case errors.Is(r.err, ErrUnusable):
				doubtful = append(doubtful, r.msgs)
			}
		}
		if err := m.learn(l, before, fixedTime(), fixedTime()); err != nil {
			if !store.unpowered {
				return nil, err
			}
			for q := before; q < m.next(); q++ {
				m.events[q].Enqueued = fixedTime().UTC()
			}
		}
		if doubtful != nil || store.unpowered {
			return doubtful, nil
		}
	}
	return nil, nil
}

// resolve finds out how many of the doubtful batches are in the log: only whole
// ones, and none after a missing one.
func (m *model) resolve(l *Log, doubtful [][]Message) error {
	for _, b := range doubtful {
		if l.Info().Last < m.next() {
			break
		}
		m.append(b)
	}
	if got := l.Info().Last; got != m.next()-1 {
		return fmt.Errorf("the last event is %d, which is no end of a batch, or acknowledged events are lost: want %d", got, m.next()-1)
	}
	return nil
}

// TestFailedWriteStaysGone makes a write or fsync fail, and cuts the power right
// after the appenders got their errors.
func TestFailedWriteStaysGone(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		store := newMachine(rng)
		l := openMachine(t, store)
		mustAppend(t, l, "one")
		op, failed := []string{"write", "sync"}[rng.IntN(2)], false
		store.fault = func(got string) error {
			if got != op || failed {
				return nil
			}
			failed = true
			return someErrno(rng)
		}
		for _, r := range appendTogether(l, [][]Message{messages("two"), messages("three"), messages("four")}) {
			var failed *WriteError
			if !errors.As(r.err, &failed) || failed.Unusable {
				t.Fatalf("seed %d: failed %s: %v, want a WriteError", seed, op, r.err)
			}
		}
		want := "one"
		if rng.IntN(2) == 0 {
			mustAppend(t, l, "five")
			want = "one five"
		}
		store.unpowered = true
		store.restart()
		if got := payloads(t, openMachine(t, store)); got != want {
			t.Fatalf("seed %d: failed %s: %q in the log, want %q", seed, op, got, want)
		}
	}
}

// TestDoubtfulPages makes an fsync fail permanently, in a write or while a segment
// is created: the next process finds pages that are marked clean but may not be on
// the disk. What it returns must survive a power failure.
func TestDoubtfulPages(t *testing.T) {
	for _, full := range []bool{false, true} {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 5))
			store := newMachine(rng)
			l := openMachine(t, store)
			mustAppend(t, l, "one")
			if full {
				l.config.SegmentBytes = 1
			}
			store.failing = true // nothing is spoiled, only not written
			store.fault = func(op string) error {
				if op == "sync" || op == "remove" || op == "truncate" && !full {
					return someErrno(rng)
				}
				return nil
			}
			if r := appendTogether(l, [][]Message{messages("two")})[0]; !errors.Is(r.err, ErrUnusable) {
				t.Fatalf("seed %d: append: %v, want ErrUnusable", seed, r.err)
			}
			if r := appendTogether(l, [][]Message{messages("three")})[0]; !errors.Is(r.err, ErrUnusable) {
				t.Fatalf("seed %d: append to an unusable log: %v, want ErrUnusable", seed, r.err)
			}
			if got := payloads(t, l); got != "one" {
				t.Fatalf("seed %d: read %q from an unusable log", seed, got)
			}
			store.restart()
			l = openMachine(t, store)
			if full && rng.IntN(2) == 0 {
				mustAppend(t, l, "four")
			} else if full {
				// Now the segment in doubt is the only one.
				if err := l.Trim(100); err != nil {
					t.Fatal(err)
				}
			}
			want, info := payloads(t, l), l.Info()
			store.unpowered = true
			store.restart()
			l = openMachine(t, store)
			if got := payloads(t, l); got != want || l.Info() != info {
				t.Fatalf("seed %d: %q and %+v, but it was %q and %+v before the power was cut", seed, got, l.Info(), want, info)
			}
		}
	}
}

func openMachine(t *testing.T, store *machine) *Log {
	t.Helper()
	config, err := (*Config)(nil).withDefaults(store.path())
	if err != nil {
		t.Fatal(err)
	}
	l, err := openStorage(store, config)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
