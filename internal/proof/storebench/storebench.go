// Package storebench measures stores: checkpoints and dead letters of at-least-once
// delivery, and the dedup state of transactional delivery.
package storebench

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

var group = driver.Group{Namespace: "bench", Topic: "events", Name: "$Default"}

const incarnation = "1"

// Advance measures moving a checkpoint, with several numbers of done ranges after it.
func Advance[S driver.CheckpointStore](b *testing.B, open func(b *testing.B) S) {
	for _, n := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("ranges=%d", n), func(b *testing.B) {
			s := open(b)
			lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
			if _, err := s.Claim(b.Context(), lease, incarnation); err != nil {
				b.Fatal(err)
			}
			done := make([]driver.SequenceRange, n)
			to := int64(0)
			for b.Loop() {
				for i := range done {
					done[i] = driver.SequenceRange{First: to + 10 + 7*int64(i), Last: to + 12 + 7*int64(i)}
				}
				if err := s.Advance(b.Context(), lease, incarnation, driver.Position{Sequence: to}, done); err != nil {
					b.Fatal(err)
				}
				to++
			}
		})
	}
}

// Park measures parking dead letters of 1 KB, one or many in a call, and reading them
// afterwards.
func Park[S driver.DeadLetterQueue](b *testing.B, open func(b *testing.B) S) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b)
			deadLetters, body := make([]driver.DeadLetter, n), make([]byte, 1024)
			sequence := int64(0)
			for b.Loop() {
				for i := range deadLetters {
					deadLetters[i] = driver.DeadLetter{
						Group: group, Incarnation: incarnation, FailedAt: time.Now(), Error: "no", Attempts: 3, Status: driver.StatusDead, HasBody: true,
						Event: driver.Event{Partition: "0", Sequence: sequence, Key: fmt.Sprint(sequence % 1000), Body: body},
					}
					sequence++
				}
				if err := s.Park(b.Context(), deadLetters); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(sequence)/b.Elapsed().Seconds(), "letters/s")
			for what, look := range map[string]func() error{
				"Held":   func() error { _, err := s.Held(b.Context(), group, "0", nil); return err },
				"Parked": func() error { _, err := s.Parked(b.Context(), group, "0", incarnation, -1); return err },
			} {
				began := time.Now()
				if err := look(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/"+what)
			}
		})
	}
}
