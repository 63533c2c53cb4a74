package stamp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/stamp"
)

const maxOrigins = 1 << 14 // of a partition

// stamps sends messages of many origins, each enqueued a millisecond after the one before.
type stamps struct {
	*scene
	enqueued time.Time
}

func (s *stamps) send(source, partition string, stamp stamp.Stamp) {
	stamp.ID.Source, stamp.ID.Partition = source, partition
	e := &sluice.Event{Properties: map[string]any{}, Body: []byte("good")}
	stamp.SetTo(e.Properties)
	s.enqueued = s.enqueued.Add(time.Millisecond)
	e.Enqueued = s.enqueued
	s.Hub.Append("0", e)
}

// again sends messages of which the first were sent before, and returns how many take effect.
func (s *stamps) again(send func()) int {
	before := len(s.Rows())
	send()
	return len(s.pass(1000, 1)) - before
}

// full returns the reports of a bound.
func (s *stamps) full() (list []string) {
	for _, o := range s.Observations() {
		if errors.Is(o.Err, sluice.ErrDedupFull) {
			list = append(list, o.Err.Error())
		}
	}
	return list
}

// An origin that is forgotten because there are too many is reported, and goes from the table too:
// the one whose last event is oldest.
func TestTooManyOrigins(t *testing.T) {
	for _, maxBatch := range []int{100, 20_000} {
		stage(t, 1, func(scene *scene) {
			s := &stamps{scene, time.Now()}
			s.send("flights@0", "0", stampOf(5, 1, -1))
			s.send("flights@0", "0", retried(6))
			for n := range maxOrigins - 2 {
				s.send(fmt.Sprintf("flights@%x", n+1), "0", stampOf(5, 1, -1))
			}
			s.pass(maxBatch, 1)
			if list := s.full(); len(list) > 0 {
				s.T.Errorf("%d origins: reported %q", maxOrigins, list)
			}
			if n := s.again(func() { s.send("flights@new", "0", stampOf(5, 1, -1)) }); n != 1 {
				s.T.Errorf("%d of one new message took effect", n)
			}
			list := s.full()
			if want := "dedup state is full: 256 of 16384 partitions of feeding stages were forgotten, first flights@0/0, "; len(list) != 1 || !strings.HasPrefix(list[0], want) {
				s.T.Errorf("reported %q, want one report that begins with %q", list, want)
			}
			origins := map[string]bool{}
			for _, row := range enginetest.Must(s.Store.ReadDedup(s.T.Context(), enginetest.Group, "0")) {
				origins[row.Origin] = true
			}
			if len(origins) != maxOrigins-256+1 || origins["flights@0/0"] || origins["flights@0/0/retry"] || !origins["flights@100/0"] {
				s.T.Errorf("%d origins are in the table, the oldest %v, its redrives %v, the first to stay %v", len(origins), origins["flights@0/0"], origins["flights@0/0/retry"], origins["flights@100/0"])
			}
			if n := s.again(func() {
				s.send("flights@0", "0", stampOf(5, 1, -1))
				s.send("flights@100", "0", stampOf(5, 1, -1))
			}); n != 1 {
				s.T.Errorf("%d of two repeated messages took effect, want that of the forgotten origin", n)
			}
		})
	}
}

// One feeding stage, or whoever forges its stamps, pushes out nothing of another that takes less
// than its share.
func TestShareOfOrigins(t *testing.T) {
	stage(t, 1, func(scene *scene) {
		s := &stamps{scene, time.Now()}
		s.StampsFrom = []stamp.Source{{Topic: "flights"}, {Topic: "forged"}}
		const partitions = 1000
		honest := func() {
			for n := range partitions {
				s.send("flights@1", fmt.Sprint(n), stampOf(5, 1, -1))
			}
		}
		honest()
		for n := range 2 * maxOrigins {
			s.send(fmt.Sprintf("forged@%x", n), "0", stampOf(5, 1, -1))
		}
		s.pass(1000, 1)
		if n := s.again(honest); n != 0 {
			s.T.Errorf("%d of %d repeated messages took effect", n, partitions)
		}
		if len(s.full()) == 0 {
			s.T.Error("nothing was reported")
		}
	})
}

// The origins of one source partition, such as those of a partition's leader epochs in Kafka, push
// out no other source partition, however old that one's last event is.
func TestHistoriesOfOnePartition(t *testing.T) {
	stage(t, 1, func(scene *scene) {
		s := &stamps{scene, time.Now()}
		const partitions = 100
		others := func() {
			for n := range partitions {
				s.send("flights@1.0", fmt.Sprint(n), stampOf(5, 1, -1))
			}
		}
		others()
		last := ""
		for n := range maxOrigins + 1000 {
			last = fmt.Sprintf("flights@1.%x", n)
			s.send(last, "elected", stampOf(5, 1, -1))
		}
		s.pass(1000, 1)
		if n := s.again(func() { others(); s.send(last, "elected", stampOf(5, 1, -1)) }); n != 0 {
			s.T.Errorf("%d of %d repeated messages took effect", n, partitions+1)
		}
		if len(s.full()) == 0 {
			s.T.Error("nothing was reported")
		}
	})
}
