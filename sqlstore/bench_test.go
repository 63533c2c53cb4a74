package sqlstore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// BenchmarkCommit writes batches with the checkpoint in the same transaction.
// Rows are of 1 KB, in a table with a unique index.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 50, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "x.db"))
			if _, err := s.DB().Exec("CREATE TABLE rows (id INTEGER PRIMARY KEY, partition TEXT, sequence INTEGER, body BLOB, UNIQUE (partition, sequence))"); err != nil {
				b.Fatal(err)
			}
			l := leaseOf("0", "a", 1)
			p, err := s.Claim(b.Context(), l, "i")
			if err != nil {
				b.Fatal(err)
			}
			body, from := make([]byte, 1024), p.Position
			columns, rows := []string{"partition", "sequence", "body"}, make([][]any, size)
			done := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range rows {
					rows[i] = []any{"0", done, body}
					done++
				}
				to := at(int64(done))
				if err := s.Commit(b.Context(), sluice.Step{Lease: l, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
					return tx.Insert(ctx, "rows", columns, rows)
				}); err != nil {
					b.Fatal(err)
				}
				from = to
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkAdvance measures a checkpoint's move with so many ranges that are
// done behind it.
func BenchmarkAdvance(b *testing.B) {
	for _, n := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("ranges=%d", n), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "x.db"))
			l := leaseOf("0", "a", 1)
			if _, err := s.Claim(b.Context(), l, "i"); err != nil {
				b.Fatal(err)
			}
			done := make([]sluice.Range, n)
			to := int64(0)
			for b.Loop() {
				for i := range done {
					done[i] = sluice.Range{First: to + 10 + 7*int64(i), Last: to + 12 + 7*int64(i)}
				}
				if err := s.Advance(b.Context(), l, at(to), done); err != nil {
					b.Fatal(err)
				}
				to++
			}
		})
	}
}

// BenchmarkPark measures dead letters of 1 KB, so many in one go.
func BenchmarkPark(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "x.db"))
			letters, body := make([]sluice.DeadLetter, n), make([]byte, 1024)
			sequence := int64(0)
			for b.Loop() {
				for i := range letters {
					letters[i] = sluice.DeadLetter{
						Group: group, Incarnation: "i", FailedAt: time.Now(), Error: "no", Attempts: 3, Status: sluice.StatusDead, HasBody: true,
						Event: sluice.Event{Partition: "0", Sequence: sequence, Key: fmt.Sprint(sequence % 1000), Body: body},
					}
					sequence++
				}
				if err := s.Park(b.Context(), letters); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(sequence)/b.Elapsed().Seconds(), "letters/s")
			for what, look := range map[string]func() error{
				"Held":   func() error { _, err := s.Held(b.Context(), group, "0"); return err },
				"Parked": func() error { _, err := s.Parked(b.Context(), group, "0", "i", -1); return err },
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
