package worklist

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// model is the work list at its simplest: every arrival there ever was, and
// whether it is complete.
type model struct {
	positions []int
	done      []bool
}

// low counts the arrivals below the first that is not complete.
func (m *model) low() int {
	if n := slices.Index(m.done, false); n >= 0 {
		return n
	}
	return len(m.done)
}

func (m *model) runs() (runs [][2]int) {
	for i := m.low(); i < len(m.positions); i++ {
		switch {
		case !m.done[i]:
		case !m.done[i-1]:
			runs = append(runs, [2]int{m.positions[i], m.positions[i]})
		default:
			runs[len(runs)-1][1] = m.positions[i]
		}
	}
	return runs
}

// pair is a list and its model, which are told the same.
type pair struct {
	t    *testing.T
	size int
	l    *List[int]
	m    model
	open []uint64 // the slots that are not complete
}

func newPair(t *testing.T, size int) *pair { return &pair{t: t, size: size, l: New[int](size)} }

// arrive adds an arrival a gap after the one before.
func (p *pair) arrive(gap int) {
	p.t.Helper()
	at := gap
	if n := len(p.m.positions); n > 0 {
		at += p.m.positions[n-1] + 1
	}
	back := len(p.m.positions) - p.m.low()
	slot, ok := p.l.Arrive(at)
	if ok != (back < p.size) {
		p.t.Fatalf("Arrive says %v; the oldest lies %d arrivals back, and there is room for %d", ok, back, p.size)
	}
	if !ok {
		return
	}
	if slot != uint64(len(p.m.positions)) {
		p.t.Fatalf("arrival %d got slot %d", len(p.m.positions), slot)
	}
	p.m.positions, p.m.done = append(p.m.positions, at), append(p.m.done, false)
	p.open = append(p.open, slot)
}

// complete completes the i-th of the open slots.
func (p *pair) complete(i int) {
	if len(p.open) == 0 {
		return
	}
	i %= len(p.open)
	p.l.Done(p.open[i])
	p.m.done[p.open[i]] = true
	p.open = slices.Delete(p.open, i, i+1)
}

// low compares the frontier only, compare everything.
func (p *pair) low() {
	p.t.Helper()
	low := p.m.low()
	at, done := p.l.Low()
	if done != uint64(low) || low > 0 && at != p.m.positions[low-1] || low == 0 && at != 0 {
		p.t.Fatalf("Low is %d, %d; the model has %d complete", at, done, low)
	}
}

func (p *pair) compare() {
	p.t.Helper()
	low := p.m.low()
	at, ok := p.l.Oldest()
	if ok != (low < len(p.m.positions)) || ok && at != p.m.positions[low] {
		p.t.Fatalf("Oldest is %d, %v; the model has %d complete of %d", at, ok, low, len(p.m.positions))
	}
	p.low()
	if got := p.l.InFlight(); got != len(p.open) {
		p.t.Fatalf("InFlight is %d, want %d", got, len(p.open))
	}
	var runs [][2]int
	for first, last := range p.l.Runs() {
		runs = append(runs, [2]int{first, last})
	}
	if want := p.m.runs(); !slices.Equal(runs, want) {
		p.t.Fatalf("Above is %v, want %v", runs, want)
	}
}

// Arrivals and completions come in waves, so that the list runs full and empty.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := newPair(t, 1+rng.IntN(1<<rng.IntN(13)))
		arrivals := 50
		for range min(20*p.size, 12_000) {
			if rng.IntN(p.size+1) == 0 {
				arrivals = 5 + 90*rng.IntN(2)
			}
			switch draw := rng.IntN(1000); {
			case draw < 3:
				p.compare()
			case draw < 10:
				p.low()
			case draw < 10*arrivals:
				p.arrive(rng.IntN(2) * rng.IntN(100))
			case rng.IntN(2) == 0:
				p.complete(rng.IntN(4)) // near the oldest
			default:
				p.complete(rng.IntN(1 << 20))
			}
		}
		for len(p.open) > 0 {
			p.complete(rng.IntN(1 << 20))
		}
		p.compare()
	}
}

// A fuzz input is a size and steps of one byte: a question, arrivals or a
// completion, as its lowest bits say.
func FuzzModel(f *testing.F) {
	f.Add([]byte{4, 0, 1, 1, 1, 1, 2, 6, 3, 2, 2, 2, 3, 1, 3})
	f.Add(append([]byte{3, 8}, slices.Repeat([]byte{253, 2, 6, 3}, 64)...))
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) < 2 || len(steps) > 2000 {
			return
		}
		p := newPair(t, int(binary.LittleEndian.Uint16(steps))%5000)
		p.size = max(p.size, 1)
		for _, step := range steps[2:] {
			n := int(step >> 2)
			switch step & 3 {
			case 0:
				p.low()
			case 1:
				for range n + 1 {
					p.arrive(n)
				}
			case 2:
				p.complete(n * n)
			case 3:
				p.compare()
			}
		}
		p.compare()
	})
}

// A list takes memory for what is in flight, not for what it could hold.
func TestMemory(t *testing.T) {
	l := New[[48]byte](320_000)
	for range 1000 { // three times through the ring, 1,000 in flight
		var slots [1000]uint64
		for i := range slots {
			slots[i], _ = l.Arrive([48]byte{})
		}
		for _, slot := range slots {
			l.Done(slot)
		}
		l.Low()
	}
	held := 0
	for _, c := range l.ring {
		if c != nil {
			held++
		}
	}
	if held > 1 {
		t.Fatalf("%d chunks are held with nothing in flight", held)
	}
	if n := testing.AllocsPerRun(10_000, func() {
		slot, _ := l.Arrive([48]byte{})
		l.Done(slot)
		l.Low()
	}); n > 0 {
		t.Fatalf("%v allocations per event", n)
	}
}

// Eight goroutines complete while the owner adds, asks and reads the runs. They
// share every word of the ring.
func TestConcurrent(t *testing.T) {
	const events, size, workers = 400_000, 5_000, 8
	l, rng := New[uint64](size), need.Rand(t)
	var done sync.WaitGroup
	var work [workers]chan uint64
	for w := range work {
		work[w] = make(chan uint64, size/workers+1)
		done.Go(func() {
			for slot := range work[w] {
				l.Done(slot)
			}
		})
	}
	var low uint64
	for at := uint64(0); at < events; {
		slot, ok := l.Arrive(at * 3)
		if !ok {
			runtime.Gosched()
			continue
		}
		if slot != at {
			t.Fatalf("arrival %d got slot %d", at, slot)
		}
		work[rng.IntN(workers)] <- slot
		if at++; at%100 > 0 {
			continue
		}
		end, n := l.Low()
		if n < low || n > 0 && end != (n-1)*3 {
			t.Fatalf("Low is %d, %d after %d", end, n, low)
		}
		low = n
		for first, last := range l.Runs() {
			if n > 0 && first <= end || last < first {
				t.Fatalf("the run %d to %d is not above %d", first, last, end)
			}
			end = last
		}
		if in := l.InFlight(); in < 0 || in > size {
			t.Fatalf("%d in flight", in)
		}
	}
	for w := range work {
		close(work[w])
	}
	done.Wait()
	if n := l.InFlight(); n != 0 {
		t.Fatalf("at the end %d are in flight", n)
	}
	if at, n := l.Low(); n != events || at != (events-1)*3 {
		t.Fatalf("at the end Low is %d, %d", at, n)
	}
}
