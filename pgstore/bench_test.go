package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/storebench"
	"github.com/sluice-go/sluice/pgstore"
)

const (
	batch = 1000 // rows
	width = 1000 // bytes of a row's body
)

// BenchmarkCommit measures rows of 1 KB in batches of 1,000 by COPY, each
// batch a step of its own, on so many partitions at a time. BenchmarkByHand is
// what a loop without Sluice reaches.
func BenchmarkCommit(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			s := benchmarkTable(b)
			benchmarkRows(b, partitions, func(b *testing.B, partition int) func(ctx context.Context) error {
				l := lease("a", 1)
				l.Partition = fmt.Sprint(partition)
				at := claim(b, s, l).Position
				return func(ctx context.Context) error {
					to := driver.Position{Sequence: at.Sequence + batch}
					err := s.Commit(ctx, driver.Step{Lease: l, From: at, To: to}, func(ctx context.Context, tx pgx.Tx) error {
						return insertBatch(ctx, tx, partition)
					})
					at = to
					return err
				}
			})
		})
	}
}

func BenchmarkByHand(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			s := benchmarkTable(b)
			benchmarkRows(b, partitions, func(b *testing.B, partition int) func(ctx context.Context) error {
				return func(ctx context.Context) error {
					return pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
						if err := insertBatch(ctx, tx, partition); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, `INSERT INTO progress VALUES ($1, 1) ON CONFLICT (partition) DO UPDATE SET n = progress.n + 1`, partition)
						return err
					})
				}
			})
		})
	}
}

// benchmarkTable makes a server that keeps its word, and the table.
func benchmarkTable(b *testing.B) *pgstore.Store {
	server := pgtest.New(b, &pgtest.Config{Durable: true})
	url, err := server.CreateDatabase(b.Context(), "flights")
	if err != nil {
		b.Fatal(err)
	}
	s := open(b, url, nil)
	const tables = `CREATE TABLE events (hub_partition bigint, sequence_number bigint, body text); CREATE TABLE progress (partition bigint PRIMARY KEY, n bigint)`
	if _, err := s.Pool().Exec(b.Context(), tables); err != nil {
		b.Fatal(err)
	}
	return s
}

var body = string(bytes.Repeat([]byte("x"), width))

func insertBatch(ctx context.Context, tx pgx.Tx, partition int) error {
	columns := []string{"hub_partition", "sequence_number", "body"}
	values := make([]any, 0, batch*len(columns))
	rows := make([][]any, batch)
	for i := range rows {
		values = append(values, partition, i, body)
		rows[i] = values[i*len(columns):]
	}
	return pgstore.Insert(ctx, tx, "events", columns, rows)
}

// benchmarkRows runs b.N batches on so many partitions at a time.
func benchmarkRows(b *testing.B, partitions int, start func(b *testing.B, partition int) func(ctx context.Context) error) {
	batches := make(chan struct{})
	errs := make(chan error)
	for i := range partitions {
		next := start(b, i)
		go func() {
			var err error
			for range batches {
				if err == nil {
					err = next(b.Context())
				}
			}
			errs <- err
		}()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		batches <- struct{}{}
	}
	close(batches)
	for range partitions {
		if err := <-errs; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkEmptyStep measures what a step costs by itself.
func BenchmarkEmptyStep(b *testing.B) {
	s := open(b, pgtest.Database(b), nil)
	l := lease("a", 1)
	at := claim(b, s, l).Position
	for b.Loop() {
		to := driver.Position{Sequence: at.Sequence + 1}
		if err := s.Commit(b.Context(), driver.Step{Lease: l, From: at, To: to}, nil); err != nil {
			b.Fatal(err)
		}
		at = to
	}
}

func BenchmarkAdvance(b *testing.B) { storebench.Advance(b, benchmarkTable) }

func BenchmarkPark(b *testing.B) { storebench.Park(b, benchmarkTable) }

func BenchmarkSeen(b *testing.B) { storebench.Dedup[pgx.Tx](b, benchmarkTable) }

// BenchmarkUpsert writes rows of 1 KB by key, as new rows and as updates; and the same rows by
// Insert, into a table without a key.
func BenchmarkUpsert(b *testing.B) {
	s := benchmarkTable(b)
	if _, err := s.Pool().Exec(b.Context(), `CREATE TABLE keyed (id bigint PRIMARY KEY, n bigint, body text)`); err != nil {
		b.Fatal(err)
	}
	l := lease("a", 1)
	claim(b, s, l)
	storebench.Upsert(b, func(b *testing.B, write storebench.Write) {
		err := s.Commit(b.Context(), driver.Step{Lease: l, From: driver.Unset, To: driver.Unset}, func(ctx context.Context, tx pgx.Tx) error {
			if write.Key == nil {
				return pgstore.Insert(ctx, tx, "events", []string{"hub_partition", "sequence_number", "body"}, write.Rows)
			}
			return pgstore.Upsert(ctx, tx, "keyed", []string{"id", "n", "body"}, write.Rows, driver.Keyed{Key: write.Key})
		})
		if err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkKeyed compares rows of 1 KB on four partitions: by Insert into a table without a key, by
// key as new rows, and as updates of rows that are there.
func BenchmarkKeyed(b *testing.B) {
	const existing = 50 * batch // of a partition
	columns := []string{"hub_partition", "sequence_number", "body"}
	for _, kind := range []string{"insert", "new", "update"} {
		b.Run(kind, func(b *testing.B) {
			s := benchmarkTable(b)
			text := `ALTER TABLE events ADD PRIMARY KEY (hub_partition, sequence_number)`
			switch kind {
			case "insert":
				text = ""
			case "update":
				text += fmt.Sprintf(`; INSERT INTO events SELECT n %% 4, n / 4, repeat('y', %d) FROM generate_series(0, %d) AS n`, width, 4*existing-1)
			}
			if _, err := s.Pool().Exec(b.Context(), text); err != nil {
				b.Fatal(err)
			}
			benchmarkRows(b, 4, func(b *testing.B, partition int) func(ctx context.Context) error {
				l := lease("a", 1)
				l.Partition = fmt.Sprint(partition)
				claim(b, s, l)
				rows, next := make([][]any, batch), 0
				return func(ctx context.Context) error {
					for i := range rows {
						rows[i] = []any{partition, next + i, body}
					}
					if next += batch; kind == "update" {
						next %= existing
					}
					return s.Commit(ctx, driver.Step{Lease: l, From: driver.Unset, To: driver.Unset}, func(ctx context.Context, tx pgx.Tx) error {
						if kind == "insert" {
							return pgstore.Insert(ctx, tx, "events", columns, rows)
						}
						return pgstore.Upsert(ctx, tx, "events", columns, rows, driver.Keyed{Key: columns[:2]})
					})
				}
			})
		})
	}
}

// BenchmarkUpsertByHand is what PostgreSQL takes for the updates of BenchmarkUpsert without Sluice:
// a COPY into a temporary table, and one statement from there.
func BenchmarkUpsertByHand(b *testing.B) {
	s := benchmarkTable(b)
	if _, err := s.Pool().Exec(b.Context(), `CREATE TABLE keyed (id bigint PRIMARY KEY, n bigint, body text); INSERT INTO keyed SELECT n, n, repeat('x', 1024) FROM generate_series(1, 10000) AS n`); err != nil {
		b.Fatal(err)
	}
	text := string(bytes.Repeat([]byte("x"), 1024))
	for name, statement := range map[string]string{
		"insert":   "",
		"Sluice":   "",
		"conflict": `INSERT INTO keyed SELECT * FROM staged ORDER BY id ON CONFLICT (id) DO UPDATE SET n = excluded.n, body = excluded.body`,
	} {
		b.Run(name, func(b *testing.B) {
			done := 0
			for b.Loop() {
				rows := make([][]any, batch)
				for i := range rows {
					rows[i] = []any{1 + (done+i*7)%10000, done + i, text}
				}
				done += batch
				err := pgx.BeginFunc(b.Context(), s.Pool(), func(tx pgx.Tx) error {
					if name == "Sluice" {
						return pgstore.Upsert(b.Context(), tx, "keyed", []string{"id", "n", "body"}, rows, driver.Keyed{Key: []string{"id"}})
					}
					if _, err := tx.Exec(b.Context(), `CREATE TEMPORARY TABLE IF NOT EXISTS staged (id bigint, n bigint, body text) ON COMMIT DELETE ROWS`); err != nil {
						return err
					}
					into, columns := pgx.Identifier{"staged"}, []string{"id", "n", "body"}
					if name == "insert" { // with nothing between
						into, columns = pgx.Identifier{"events"}, []string{"hub_partition", "sequence_number", "body"}
					}
					if _, err := tx.CopyFrom(b.Context(), into, columns, pgx.CopyFromRows(rows)); err != nil || name == "insert" {
						return err
					}
					_, err := tx.Exec(b.Context(), statement)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
