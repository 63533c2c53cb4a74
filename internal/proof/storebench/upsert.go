package storebench

import (
	"fmt"
	"strings"
	"testing"
)

// Write is a batch of rows: a number, another one, and a text of 1 KB.
type Write struct {
	Rows [][]any
	Key  []string // nil: by Insert
}

// Upsert measures rows by Insert into a table without a key, and by Upsert as new rows and as
// updates. write commits one batch.
func Upsert(b *testing.B, write func(b *testing.B, w Write)) {
	body := strings.Repeat("x", 1024)
	for _, size := range []int{100, 1000, 10000} {
		next := 0
		for _, kind := range []string{"insert", "new", "update"} {
			w := Write{Rows: make([][]any, size)}
			if kind != "insert" {
				w.Key = []string{"id"}
			}
			b.Run(fmt.Sprint(kind, "/", size), func(b *testing.B) {
				done := 0
				for b.Loop() {
					for i := range w.Rows {
						if kind == "update" { // of the last rows
							w.Rows[i] = []any{10_000_000 + size*1_000_000 + next - 1 - (i*7)%size, done, body}
						} else {
							w.Rows[i] = []any{10_000_000 + size*1_000_000 + next + i, done, body}
						}
						done++
					}
					write(b, w)
					if kind != "update" {
						next += size
					}
				}
				b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
