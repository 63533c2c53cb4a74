package sqlstore

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/storebench"
)

// BenchmarkCommit writes batches with the checkpoint in the same transaction.
// Rows are of 1 KB, in a table with a unique index.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 50, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openFile(b)
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
				to := positionAt(int64(done))
				if err := s.Commit(b.Context(), driver.Step{Lease: l, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
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

func BenchmarkAdvance(b *testing.B) { storebench.Advance(b, openFile) }

func BenchmarkPark(b *testing.B) { storebench.Park(b, openFile) }

func BenchmarkSeen(b *testing.B) { storebench.Dedup[*Tx](b, openFile) }

func openFile(b *testing.B) *Store { return open(b, filepath.Join(b.TempDir(), "x.db")) }

// BenchmarkUpsert writes rows of 1 KB by key, as new rows and as updates; and the same rows by
// Insert, into a table without a key.
func BenchmarkUpsert(b *testing.B) {
	s := openFile(b)
	benchmarkUpsert(b, s, "TEXT")
}

func benchmarkUpsert(b *testing.B, s *Store, text string) {
	for _, table := range []string{"plain (id BIGINT", "keyed (id BIGINT NOT NULL PRIMARY KEY"} {
		if _, err := s.DB().Exec("CREATE TABLE " + table + ", n BIGINT, body " + text + ")"); err != nil {
			b.Fatal(err)
		}
	}
	l := leaseOf("0", "a", 1)
	if _, err := s.Claim(b.Context(), l, "i"); err != nil {
		b.Fatal(err)
	}
	columns := []string{"id", "n", "body"}
	storebench.Upsert(b, func(b *testing.B, write storebench.Write) {
		err := s.Commit(b.Context(), driver.Step{Lease: l, From: driver.Unset, To: driver.Unset}, func(ctx context.Context, tx *Tx) error {
			if write.Key == nil {
				return tx.Insert(ctx, "plain", columns, write.Rows)
			}
			return tx.Upsert(ctx, "keyed", columns, write.Rows, driver.Keyed{Key: write.Key})
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkMariaDBUpsert(b *testing.B) {
	benchmarkUpsert(b, openMariaDB(b, mariadbtest.Database(b), nil), "LONGTEXT")
}

func BenchmarkSQLServerUpsert(b *testing.B) {
	benchmarkUpsert(b, openMSSQL(b, sqlservertest.Database(b), nil), "nvarchar(max)")
}
