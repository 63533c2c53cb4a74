package rollup

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/stamp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func number(t testing.TB, text string) *Number {
	t.Helper()
	n, err := ParseNumber(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &n
}

func TestNumbersAreExact(t *testing.T) {
	for _, c := range []struct{ a, b, sum string }{
		{"1", "2", "3"},
		{"-0", "0", "0"},
		{"0.1", "0.2", "0.3"},
		{"0.5", "0.50", "1"},
		{"9223372036854775807", "1", "9223372036854775808"},
		{"-9223372036854775808", "-1", "-9223372036854775809"},
		{"9223372036854775807", "-9223372036854775807", "0"},
		{"99999999999999999999999999999999999999", "0.00000000000000000000000000000000000001", "99999999999999999999999999999999999999.00000000000000000000000000000000000001"},
		{"10", "0.0", "10"},
		{"-1.5", "1000", "998.5"},
	} {
		if got := number(t, c.a).Add(*number(t, c.b)).String(); got != c.sum {
			t.Errorf("%s + %s = %s, want %s", c.a, c.b, got, c.sum)
		}
	}
	for _, text := range []string{strings.Repeat("9", 39), "0." + strings.Repeat("0", 38) + "1"} {
		if _, err := ParseNumber(text); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzNumber: sums, order and averages are those of math/big.
func FuzzNumber(f *testing.F) {
	f.Add("1.25", "-9223372036854775808")
	f.Add("9223372036854775807", "9223372036854775807")
	f.Fuzz(func(t *testing.T, a, b string) {
		n, err := ParseNumber(a)
		m, err2 := ParseNumber(b)
		if err != nil || err2 != nil || strings.ContainsAny(a+b, "/eE_xXpPbBoO") {
			return
		}
		x, ok := new(big.Rat).SetString(a)
		y, ok2 := new(big.Rat).SetString(b)
		if !ok || !ok2 {
			t.Fatalf("%q or %q was taken for a number", a, b)
		}
		sum := n.Add(m)
		if got, ok := new(big.Rat).SetString(sum.String()); !ok || got.Cmp(new(big.Rat).Add(x, y)) != 0 {
			t.Fatalf("%s + %s = %s", a, b, sum)
		}
		if n.Less(m) != (x.Cmp(y) < 0) {
			t.Fatalf("%s < %s: %v", a, b, n.Less(m))
		}
		third, _ := new(big.Rat).Quo(x, big.NewRat(3, 1)).Float64()
		if n.DividedBy(3) != third {
			t.Fatalf("%s / 3 = %v, want %v", a, n.DividedBy(3), third)
		}
	})
}

func TestFigures(t *testing.T) {
	m := New([]Function{Count, Sum, Min, Max, Avg}, time.Hour, time.Time{})
	take := func(sequence int64, part string, values ...string) {
		t.Helper()
		e := &Event{Enqueued: noon, Sequence: sequence, Parts: []string{part}, Time: noon, Values: make([]*Number, 5)}
		for i, v := range values {
			if v != "" {
				e.Values[i+1] = number(t, v)
			}
		}
		if so, err := m.Add(e); so != Counted || err != nil {
			t.Fatalf("event %d: %v, %v", sequence, so, err)
		}
	}
	take(1, "a", "3", "3", "3", "3")
	take(2, "b", "", "", "", "")
	take(3, "a", "-1.5", "-1.5", "-1.5", "-1.5")
	take(4, "a", "", "7", "", "2")
	want := []Group{
		{Parts: []string{"a"}, Time: noon, Version: 4, Values: []string{"3", "1.5", "-1.5", "3", "1.1666666666666667"}},
		{Parts: []string{"b"}, Time: noon, Version: 2, Values: []string{"1", "null", "null", "null", "null"}},
	}
	if got := m.Changed(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := m.Changed(); len(got) != 0 {
		t.Errorf("nothing has changed but %+v", got)
	}
	take(5, "b", "1", "1", "1", "1")
	if got := m.Changed(); len(got) != 1 || got[0].Version != 5 || got[0].Values[0] != "2" {
		t.Errorf("then %+v", got)
	}
}

func TestOutcomes(t *testing.T) {
	id := &stamp.CausationID{Source: "s", Partition: "0", Sequence: 700}
	for name, c := range map[string]struct {
		start    time.Time
		enqueued time.Duration // from noon on
		id       *stamp.CausationID
		want     Outcome
	}{
		"in time":             {noon.Add(-time.Hour), 0, nil, Counted},
		"just early enough":   {time.Time{}, -Early, nil, Counted},
		"too early":           {time.Time{}, -Early - 1, nil, OutsideWindow},
		"just in time":        {time.Time{}, 2 * time.Hour, nil, Counted},
		"too late":            {time.Time{}, 2*time.Hour + 1, nil, OutsideWindow},
		"just whole":          {noon.Add(-Early), 0, nil, Counted},
		"not whole":           {noon.Add(-Early + 1), 0, nil, Incomplete},
		"another's id":        {time.Time{}, 0, &stamp.CausationID{Source: "s", Partition: "1", Sequence: 700}, Counted},
		"another number":      {time.Time{}, 0, &stamp.CausationID{Source: "s", Partition: "0", Sequence: 701}, Counted},
		"another message":     {time.Time{}, 0, &stamp.CausationID{Source: "s", Partition: "0", Sequence: 700, N: 1}, Counted},
		"the same once again": {time.Time{}, 0, id, Duplicate},
	} {
		m := New([]Function{Count}, 2*time.Hour, c.start)
		take := func(id *stamp.CausationID, enqueued time.Duration) Outcome {
			so, err := m.Add(&Event{Enqueued: noon.Add(enqueued), ID: id, Parts: []string{"a"}, Time: noon, Values: []*Number{nil}})
			if err != nil {
				t.Fatal(err)
			}
			return so
		}
		if c.start.IsZero() {
			take(id, 0)
		}
		if so := take(c.id, c.enqueued); so != c.want {
			t.Errorf("%s: %v, want %v", name, so, c.want)
		}
	}
}

func TestWhatCannotChangeIsForgotten(t *testing.T) {
	m := New([]Function{Count}, time.Hour, time.Time{})
	for i := range int64(48) {
		at := noon.Add(time.Duration(i) * time.Hour)
		for n := range int64(1000) {
			e := &Event{Enqueued: at, Sequence: i, ID: &stamp.CausationID{Source: "s", Sequence: i*1000 + n}, Parts: []string{"a"}, Time: at, Values: []*Number{nil}}
			if so, err := m.Add(e); so != Counted || err != nil {
				t.Fatal(so, err)
			}
		}
		m.Changed()
		if m.Groups() > 3 || len(m.dedup.pages) > 10 {
			t.Fatalf("after %d hours %d groups and %d pages of ids are in memory", i, m.Groups(), len(m.dedup.pages))
		}
	}
}

// TestStatisticsDoNotDependOnTheStart: a log with repeats, and events that
// come early and late, is read from several times on, in batches of any size:
// what is published of a group last, if anything, is always the same.
func TestStatisticsDoNotDependOnTheStart(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var log []*Event
		for i := range int64(3000) {
			enqueued := noon.Add(time.Duration(i) * 20 * time.Second) // 16 h 40 min
			if i > 10 && r.IntN(5) == 0 {                             // a repeat of an earlier one
				again := *log[r.IntN(len(log))]
				again.Enqueued, again.Sequence = enqueued, i
				log = append(log, &again)
				continue
			}
			at := enqueued.Add(-time.Duration(r.ExpFloat64() * float64(2*time.Hour))).Add(time.Duration(r.Int64N(int64(20 * time.Minute))))
			log = append(log, &Event{
				Enqueued: enqueued, Sequence: i, ID: &stamp.CausationID{Source: "s", Sequence: i},
				Parts: []string{fmt.Sprint(r.IntN(3))}, Time: at.Truncate(time.Hour), Values: []*Number{nil, number(t, fmt.Sprint(r.IntN(100)))},
			})
		}
		read := func(first int) map[string]Group {
			var from time.Time
			if first > 0 {
				from = log[first].Enqueued
			}
			m, last := New([]Function{Count, Sum}, 3*time.Hour, from), map[string]Group{}
			for rest := log[first:]; len(rest) > 0; {
				n := 1 + r.IntN(min(len(rest), 100))
				for _, e := range rest[:n] {
					if _, err := m.Add(e); err != nil {
						t.Fatal(err)
					}
				}
				rest = rest[n:]
				for _, g := range m.Changed() {
					last[g.Time.String()+g.Parts[0]] = g
				}
			}
			return last
		}
		whole := read(0)
		held := 0
		for range 10 {
			first := r.IntN(2500)
			part := read(first)
			for key, g := range part {
				if !reflect.DeepEqual(g, whole[key]) {
					t.Fatalf("seed %d: read from event %d on, %s is %+v, and from the first on %+v", seed, first, key, g, whole[key])
				}
			}
			for key, g := range whole {
				if _, ok := part[key]; !ok {
					held++
					if g.Time.Add(-Early).After(log[first].Enqueued) {
						t.Fatalf("seed %d: read from event %d on, %s is missing", seed, first, key)
					}
				}
			}
		}
		if held == 0 || len(whole) < 30 {
			t.Fatalf("seed %d: %d groups, %d held back", seed, len(whole), held)
		}
	}
}

func TestTooManyGroups(t *testing.T) {
	m := New([]Function{Count}, time.Hour, time.Time{})
	for i := range MaxGroups {
		m.groups[fmt.Sprint(i)] = nil
	}
	if _, err := m.Add(&Event{Enqueued: noon, Time: noon, Parts: []string{"a"}, Values: []*Number{nil}}); !errors.Is(err, ErrTooManyGroups) {
		t.Errorf("got %v", err)
	}
}

func TestKindsHaveNames(t *testing.T) {
	var names []string
	for name := range Functions {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"avg", "count", "max", "min", "sum"}) {
		t.Errorf("kinds %q", names)
	}
}

// Memory is bounded in bytes too: long values and sparse ids count.
func TestBytesAreBounded(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for name, add := range map[string]func(n int) *Event{
		"long values": func(n int) *Event {
			return &Event{Enqueued: at, Time: at, Sequence: int64(n), Parts: []string{strconv.Itoa(n) + strings.Repeat("x", 1000)}, Values: []*Number{nil}}
		},
		"sparse ids": func(n int) *Event {
			id := &stamp.CausationID{Source: "s", Partition: "0", Sequence: int64(n) * pageBits}
			return &Event{Enqueued: at, Time: at, Sequence: int64(n), ID: id, Parts: []string{"one"}, Values: []*Number{nil}}
		},
	} {
		m := New([]Function{Count}, 12*time.Hour, time.Time{})
		m.maxBytes = 1 << 20
		n := 0
		for ; n < 100_000; n++ {
			if _, err := m.Add(add(n)); err != nil {
				if !errors.Is(err, ErrTooManyBytes) {
					t.Error(err)
				}
				break
			}
		}
		if n < 100 || n == 100_000 {
			t.Errorf("%s: %d events were added in 1 MiB", name, n)
		}
		// What expires makes room.
		later := at.Add(24 * time.Hour)
		m.latest = later
		m.expire()
		if m.bytes != 0 || m.dedup.bytes != 0 {
			t.Errorf("%s: %d and %d bytes after all has expired", name, m.bytes, m.dedup.bytes)
		}
	}
}

// account has a number of bytes.
type account struct{ left int64 }

func (a *account) Try(n int64) bool {
	if n > a.left {
		return false
	}
	a.left -= n
	return true
}

func (a *account) Give(n int64) { a.left += n }

// Groups and ids are charged before they are kept. Their charge is released when they expire.
func TestWhatIsKeptIsCharged(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	a := &account{left: 1 << 20}
	m := New([]Function{Count}, 12*time.Hour, time.Time{})
	m.ChargeTo(a)
	var err error
	for n := 0; err == nil && n < 100_000; n++ {
		id := &stamp.CausationID{Source: "s", Partition: "0", Sequence: int64(n) * pageBits}
		_, err = m.Add(&Event{Enqueued: at, Time: at, Sequence: int64(n), ID: id, Parts: []string{strconv.Itoa(n)}, Values: []*Number{nil}})
	}
	if !errors.Is(err, ErrNoMemory) || a.left < 0 || a.left+m.bytes+m.dedup.bytes != 1<<20 {
		t.Errorf("%v, %d bytes are left beside %d", err, a.left, m.bytes+m.dedup.bytes)
	}
	m.latest = at.Add(24 * time.Hour)
	m.expire()
	if a.left != 1<<20 {
		t.Errorf("%d bytes are left when all has expired", a.left)
	}
	if _, err := m.Add(&Event{Enqueued: m.latest, Time: m.latest, Parts: []string{"one"}, Values: []*Number{nil}}); err != nil {
		t.Error(err)
	}
	if m.Release(); a.left != 1<<20 {
		t.Errorf("%d bytes are left after the release", a.left)
	}
}
