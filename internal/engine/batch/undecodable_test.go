package batch_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// An event that the driver could not decode becomes a dead letter, whatever the filter says, also
// when it is delivered again; the handler never sees it.
func TestUndecodableBecomesDeadLetter(t *testing.T) {
	stage(t, 1, func(s *scene) {
		for n := range 20 {
			e := &sluice.Event{Body: []byte("good")}
			if n == 7 || n == 8 || n == 19 {
				e = &sluice.Event{Body: []byte("other: raw"), Undecodable: "properties: no map"}
			}
			s.Hub.Append("0", e)
		}
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{Filter: notOther})
		time.Sleep(time.Minute)
		check := func() {
			var got []string
			for _, l := range s.Letters(sluice.StatusDead) {
				full := enginetest.Must(s.Store.Get(s.T.Context(), enginetest.Group, l.ID))
				got = append(got, fmt.Sprintf("%d %s %q %s", l.Event.Sequence, full.Event.Body, full.Event.Undecodable, l.Error))
			}
			var want []string
			for _, n := range []int{7, 8, 19} {
				want = append(want, fmt.Sprintf(`%d other: raw "properties: no map" the event cannot be decoded (properties: no map): the body is what the log holds`, n))
			}
			if slices.Sort(got); !slices.Equal(got, []string{want[2], want[0], want[1]}) {
				s.T.Errorf("dead letters\n%q\nwant\n%q", got, want)
			}
			if rows := s.Rows(); len(rows) != 17 || slices.Contains(rows, 7) {
				s.T.Errorf("rows %v", rows)
			}
		}
		check()
		enginetest.Must(s.Store.Redrive(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(time.Minute)
		end()
		check()
		if p := s.Position("0"); p != 19 {
			s.T.Errorf("checkpoint at %d", p)
		}
	})
}
