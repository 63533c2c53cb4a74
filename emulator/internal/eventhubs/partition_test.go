package eventhubs

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSeek seeks every kind of start position in a partition with the events 10 to
// 19, of which two each were enqueued in the same millisecond.
func TestSeek(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	tick := 0
	b, err := Open("", []Config{{Name: "h", Partitions: 1}}, &Options{Now: func() time.Time {
		return at(10 * (tick / 2))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, b)
	p := mustPartition(t, mustHub(t, b, "h"), "0")
	offsets := map[int64]string{}
	for ; tick < 20; tick++ {
		mustAppend(t, p, "event "+strconv.Itoa(tick))
		offsets[int64(tick)] = p.Info().LastOffset
	}
	if err := p.Trim(10); err != nil {
		t.Fatal(err)
	}
	end := p.Info().End
	for _, c := range []struct {
		start StartPosition
		want  int64 // -1 is a StartError
	}{
		{StartPosition{}, 10},
		{StartPosition{Kind: Earliest, Inclusive: true}, 10},
		{StartPosition{Kind: Latest}, 20},
		{StartPosition{Kind: AtSequence, Sequence: 15}, 16},
		{StartPosition{Kind: AtSequence, Sequence: 15, Inclusive: true}, 15},
		{StartPosition{Kind: AtSequence, Sequence: -1}, 10},
		{StartPosition{Kind: AtSequence, Sequence: math.MinInt64}, 10},
		{StartPosition{Kind: AtSequence, Sequence: 3, Inclusive: true}, 10},
		{StartPosition{Kind: AtSequence, Sequence: 19}, 20},
		{StartPosition{Kind: AtSequence, Sequence: 20, Inclusive: true}, 20},
		{StartPosition{Kind: AtSequence, Sequence: 20}, -1},
		{StartPosition{Kind: AtSequence, Sequence: 21, Inclusive: true}, -1},
		{StartPosition{Kind: AtSequence, Sequence: math.MaxInt64}, -1},
		{StartPosition{Kind: AtOffset, Offset: offsets[15]}, 16},
		{StartPosition{Kind: AtOffset, Offset: offsets[15], Inclusive: true}, 15},
		{StartPosition{Kind: AtOffset, Offset: offsets[0]}, 10},
		{StartPosition{Kind: AtOffset, Offset: offsets[19]}, 20},
		{StartPosition{Kind: AtOffset, Offset: strconv.FormatInt(end, 10), Inclusive: true}, 20},
		{StartPosition{Kind: AtOffset, Offset: strconv.FormatInt(end+1, 10), Inclusive: true}, -1},
		{StartPosition{Kind: AtOffset, Offset: "-1"}, 10},
		{StartPosition{Kind: AtOffset, Offset: "@latest"}, 20},
		{StartPosition{Kind: AtOffset, Offset: ""}, -1},
		{StartPosition{Kind: AtOffset, Offset: "-2"}, -1},
		{StartPosition{Kind: AtOffset, Offset: "9223372036854775807"}, -1},
		{StartPosition{Kind: AtOffset, Offset: "9223372036854775808"}, -1},
		{StartPosition{Kind: AtOffset, Offset: "latest"}, -1},
		{StartPosition{Kind: AtTime, Time: at(70), Inclusive: true}, 14},
		{StartPosition{Kind: AtTime, Time: at(70)}, 16},
		{StartPosition{Kind: AtTime, Time: at(70).Add(1), Inclusive: true}, 16},
		{StartPosition{Kind: AtTime, Time: at(70).Add(-1), Inclusive: true}, 14},
		{StartPosition{Kind: AtTime, Time: at(70).Add(-1)}, 14},
		{StartPosition{Kind: AtTime, Time: at(0)}, 10},
		{StartPosition{Kind: AtTime}, 10},
		{StartPosition{Kind: AtTime, Time: at(90)}, 20},
		{StartPosition{Kind: AtTime, Time: at(1e6), Inclusive: true}, 20},
		{StartPosition{Kind: 99}, -1},
	} {
		next, err := p.Seek(c.start)
		var refused *StartError
		switch {
		case c.want == -1 && !errors.As(err, &refused):
			t.Errorf("%v: got %d, %v, want a StartError", c.start, next, err)
		case c.want >= 0 && (err != nil || next != c.want):
			t.Errorf("%v: got %d, %v, want %d", c.start, next, err, c.want)
		}
	}
	_, err = p.Seek(StartPosition{Kind: AtSequence, Sequence: 30})
	want := "partition 0 of h: cannot start at after sequence number 30: the last sequence number is 19"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestEmptyPartition starts in a partition that never held an event.
func TestEmptyPartition(t *testing.T) {
	p := mustPartition(t, mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 1}), "h"), "0")
	for _, s := range []StartPosition{
		{}, {Kind: Latest}, {Kind: AtSequence, Inclusive: true}, {Kind: AtSequence, Sequence: -1},
		{Kind: AtOffset, Offset: "-1"}, {Kind: AtOffset, Offset: "0", Inclusive: true}, {Kind: AtTime, Time: time.Now()},
	} {
		if next, err := p.Seek(s); next != 0 || err != nil {
			t.Errorf("%v: got %d, %v, want 0", s, next, err)
		}
	}
	events, err := p.Read(0, 10, 10, nil)
	if len(events) != 0 || err != nil {
		t.Errorf("read %v, %v", events, err)
	}
	if info := p.Info(); info != (Info{Last: -1, LastOffset: "-1", Empty: true}) {
		t.Errorf("info %+v", info)
	}
}

// TestErrors checks that errors name the partition, except those of a context.
func TestErrors(t *testing.T) {
	p := mustPartition(t, mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 1}), "h"), "0")
	_, err := p.Append(context.Background(), []Message{{Key: strings.Repeat("k", 1<<16)}})
	if err == nil || !strings.HasPrefix(err.Error(), "partition 0 of h: ") {
		t.Errorf("append of a large key: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Wait(ctx, 0); err != context.Canceled {
		t.Errorf("wait: %v", err)
	}
}
