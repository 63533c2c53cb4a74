package kafka

import "testing"

func TestHistory(t *testing.T) {
	for _, h := range []history{{-1, -1}, {0, -1}, {7, -1}, {0, 0}, {7, 1200}, {1<<31 - 1, 1<<63 - 1}} {
		if got := historyOf(h.String()); got != h {
			t.Errorf("%+v is %q, which is %+v", h, h, got)
		}
	}
	for _, text := range []string{"", "7", "leader-epoch", "leader-epoch ", "leader-epoch -1", "leader-epoch 7 from", "leader-epoch 7 from x",
		"leader-epoch 7 from -1", "leader-epoch 4294967296", "leader-epoch 7 until 8", "1000000"} {
		if got := historyOf(text); got != (history{-1, -1}) {
			t.Errorf("%q is %+v, want nothing known", text, got)
		}
	}
}

// What a log's answer about an epoch means for a position of that epoch.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		h         history
		endEpoch  int32
		end, last int64
		lost      int64
		unclear   bool
	}{
		"the epoch goes on":                         {history{5, 80}, 5, 200, 99, -1, false},
		"the epoch ends right after it":             {history{5, 80}, 5, 100, 99, -1, false},
		"the epoch ends before it":                  {history{5, 80}, 5, 99, 99, 99, false},
		"an earlier epoch ends before it":           {history{5, 80}, 4, 70, 99, 70, false},
		"an earlier epoch goes on past it":          {history{5, 80}, 4, 120, 99, -1, true},
		"a seek named an epoch without records":     {history{6, -1}, 5, 100, 99, -1, false},
		"a seek named an epoch, and the log is cut": {history{6, -1}, 5, 90, 99, 90, false},
		"all is lost":                               {history{0, 0}, 0, 0, 99, 0, false},
		"the position is before the records of now": {history{5, 80}, 5, 81, 80, -1, false},
		"the first record of the epoch is lost":     {history{5, 80}, 4, 80, 80, 80, false},
	} {
		if got, unclear := c.h.lostFrom(listed{c.end, -1, c.endEpoch}, c.last); got != c.lost || unclear != c.unclear {
			t.Errorf("%s: lost from %d, unclear: %v; want %d, %v", name, got, unclear, c.lost, c.unclear)
		}
	}
}

func TestAdvance(t *testing.T) {
	at := func(epoch int32, first int64) *batch { return &batch{first: first, last: first + 9, epoch: epoch} }
	h := history{-1, -1}
	for i, c := range []struct {
		b    *batch
		next int64
		want history
	}{
		{at(5, 100), 105, history{5, 105}}, // begun within a batch
		{at(5, 110), 110, history{5, 105}},
		{at(7, 120), 120, history{7, 120}},
		{at(7, 140), 130, history{7, 120}},
		{at(-1, 150), 150, history{-1, -1}},
		{at(8, 165), 160, history{8, 165}}, // after a gap
	} {
		if h = h.advance(c.b, c.next); h != c.want {
			t.Errorf("%d: %+v, want %+v", i, h, c.want)
		}
	}
	if h = (history{5, -1}).advance(at(5, 100), 103); h != (history{5, 103}) {
		t.Errorf("after a seek: %+v", h)
	}
}
