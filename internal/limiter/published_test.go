package limiter

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/clock"
)

var update = flag.Bool("update", false, "rewrite the table in docs/limiter.md")

// published is the published limiter, by its rule: a store of slots, which is
// full at the start and never holds more than a second's worth; every 100 ms,
// or every second for rates below 10, a part of the rate is put back, rounded
// up; whoever asks takes what is there.
func published(perSecond int, asks, ends time.Duration) *record {
	period, release := 100*time.Millisecond, (perSecond+9)/10
	if perSecond < 10 {
		period, release = time.Second, perSecond
	}
	r := &record{}
	slots := perSecond
	if asks%period > 0 {
		r.add(asks, slots)
		slots = 0
	}
	for at := asks - asks%period + period; at < ends; at += period {
		slots = min(slots+release, perSecond)
		r.add(at, slots)
		slots = 0
	}
	return r
}

// sluice is our limiter under the same demand: from a moment on, without end.
func sluice(t *testing.T, perSecond int, asks, ends time.Duration) (r *record) {
	synctest.Test(t, func(t *testing.T) {
		clock := clock.New()
		l := mustNew(t, perSecond, clock)
		time.Sleep(asks)
		ctx, cancel := context.WithTimeout(t.Context(), ends-asks)
		defer cancel()
		r = callers(ctx, l, clock, 2, MaxRate)
	})
	return r
}

// The table of docs/limiter.md is what the published limiter does, at the worst of the moments at
// which the demand may begin. Ours has the rate in each second.
func TestPublished(t *testing.T) {
	const ends = 6 * time.Second
	var table strings.Builder
	table.WriteString("| rate | its fullest second | its later seconds |\n")
	table.WriteString("|---:|---:|---:|\n")
	shown := []int{1, 10, 11, 101, 1_234, 1_000_000}
	for _, n := range []int{1, 9, 10, 11, 25, 101, 1_000, 1_001, 1_234, 50_000, 1_000_000} {
		theirs, theirsLater, ours, oursLater := 0, 0, 0, 0
		for _, asks := range []time.Duration{0, 50 * time.Millisecond, 99 * time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
			r := published(n, asks, ends)
			_, most := r.windows(0)
			theirs, theirsLater = max(theirs, most), max(theirsLater, r.total(ends/2, ends)/int(ends/2/time.Second))
			r = sluice(t, n, asks, ends)
			_, most = r.windows(0)
			ours, oursLater = max(ours, most), max(oursLater, r.total(ends/2, ends)/int(ends/2/time.Second))
		}
		if ours != n || oursLater != n {
			t.Errorf("%d per second: the fullest window holds %d, later ones %d", n, ours, oursLater)
		}
		if slices.Contains(shown, n) {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", thousands(n), thousands(theirs), thousands(theirsLater))
		}
	}

	const file, begin, end = "../../docs/limiter.md", "<!-- table -->\n", "<!-- end of table -->\n"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := bytes.Cut(doc, []byte(begin))
	old, tail, found2 := bytes.Cut(rest, []byte(end))
	if !found || !found2 {
		t.Fatalf("%s has no place for the table", file)
	}
	if string(old) == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not what the limiters do (go test -run %s -update); it should be\n%s", file, t.Name(), table.String())
	}
	doc = fmt.Appendf(nil, "%s%s%s%s%s", head, begin, table.String(), end, tail)
	if err := os.WriteFile(file, doc, 0o644); err != nil {
		t.Fatal(err)
	}
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
