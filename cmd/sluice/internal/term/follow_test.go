package term

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		g := &glass{}
		var lines, reported int
		s := &Screen{out: g, width: func() int { return 80 }}
		s.Follow(ctx, func() string { lines++; return "working" }, func() { reported++ })
		if lines < 100 || reported != 0 || g.String() != "" {
			t.Errorf("terminal: %d lines, reported %d times, left %q", lines, reported, g.String())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		var lines, reported int
		s := &Screen{out: &glass{}, width: func() int { return 0 }}
		s.Follow(ctx, func() string { lines++; return "" }, func() { reported++ })
		if lines != 0 || reported != 2 {
			t.Errorf("elsewhere: %d lines, reported %d times", lines, reported)
		}
	})
}

func TestSpeedIsOfTheLastSeconds(t *testing.T) {
	began := time.Unix(1e9, 0)
	var s Speed
	var got []int64
	for i := range 31 {
		got = append(got, s.Add(began.Add(time.Duration(i)*time.Second), int64(min(i, 10)*100)))
	}
	want := slices.Repeat([]int64{100}, 31)
	want[0] = 0
	for i := range 20 {
		want[i+11] = int64(max(80-20*i, 0))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
