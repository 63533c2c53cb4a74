package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

// BenchmarkRelay compares a consumer of an outbox, with its checkpoints, with a relay as it is
// written by hand (lock rows, send, delete, COMMIT), on one PostgreSQL. A message is sent to a
// function. Rows are written by four writers, each in a transaction of its own, at full speed and
// at 200 a second. The latency is from the time in the row to the function.
//
//	go test -run ^$ -bench Relay -benchtime 20000x ./outbox
func BenchmarkRelay(b *testing.B) {
	need.Postgres(b)
	need.RealTime(b)
	w := worlds[PostgreSQL](b)
	for _, paced := range []bool{false, true} {
		for _, relay := range []struct {
			name string
			run  func(ctx context.Context, b *testing.B, w *world, s *Source, sent func(body []byte))
		}{{"sluice", consume}, {"by hand", byHand}} {
			b.Run(map[bool]string{false: "full speed/", true: "200 a second/"}[paced]+relay.name, func(b *testing.B) {
				measure(b, w.another(), paced, relay.run)
			})
		}
	}
}

func measure(b *testing.B, w *world, paced bool, run func(context.Context, *testing.B, *world, *Source, func([]byte))) {
	rows := b.N
	if paced {
		rows = min(rows, 2000)
	}
	s := w.source(b, Config{})
	var latencies []time.Duration
	warm, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	var running, writing sync.WaitGroup
	running.Go(func() {
		run(ctx, b, w, s, func(body []byte) {
			if string(body) == "warm" {
				close(warm)
				return
			}
			at, _ := strconv.ParseInt(string(body), 10, 64)
			if latencies = append(latencies, time.Duration(time.Now().UnixNano()-at)); len(latencies) == rows {
				close(done)
			}
		})
	})
	suite.NoError(b, "put", put(ctx, s, 0, Message{Body: []byte("warm")}))
	<-warm
	b.ResetTimer()
	began := time.Now()
	for i := range 4 {
		writing.Go(func() {
			for n := i; n < rows; n += 4 {
				if paced {
					time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / 200)))
				}
				suite.NoError(b, "put", put(ctx, s, 0, Message{Body: []byte(strconv.FormatInt(time.Now().UnixNano(), 10))}))
			}
		})
	}
	writing.Wait()
	written := time.Since(began)
	<-done
	took := time.Since(began)
	b.StopTimer()
	cancel()
	running.Wait()
	slices.Sort(latencies)
	b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
	b.ReportMetric(float64(rows)/written.Seconds(), "written/s")
	b.ReportMetric(float64(latencies[rows/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(latencies[rows*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// consume runs a consumer with checkpoints in the same database, which deletes what is done.
func consume(ctx context.Context, b *testing.B, w *world, s *Source, sent func([]byte)) {
	store, err := pgstore.Open(ctx, w.address, nil)
	suite.NoError(b, "open", err)
	defer store.Close()
	s.DeleteAfter(0, Reader{Checkpoints: store})
	c, err := sluice.New(s, store.Leases(), sluice.Batches(store, func(_ context.Context, batch sluice.Batch) error {
		for _, e := range batch.Events {
			sent(e.Body)
		}
		return nil
	}, nil), &sluice.Config{Observer: driver.ObserverFunc(func(driver.Observation) {})})
	suite.NoError(b, "new", err)
	_ = c.Run(ctx)
}

// byHand relays 100 rows in a transaction, and polls every 20 ms when there are none.
func byHand(ctx context.Context, b *testing.B, w *world, s *Source, sent func([]byte)) {
	for ctx.Err() == nil {
		n, err := relayOnce(ctx, w.db, w.table, sent)
		if err != nil && ctx.Err() == nil {
			b.Errorf("relay: %v", err)
			return
		}
		if n == 0 {
			wait(ctx, 20*time.Millisecond)
		}
	}
}

func relayOnce(ctx context.Context, db *sql.DB, table string, sent func([]byte)) (n int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id, body FROM %s ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED", table))
	if err != nil {
		return 0, err
	}
	var ids []int64
	var bodies [][]byte
	for rows.Next() {
		var id int64
		var body []byte
		if err := rows.Scan(&id, &body); err != nil {
			return 0, err
		}
		ids, bodies = append(ids, id), append(bodies, body)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, body := range bodies {
		sent(body)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE id = ANY($1)", table), ids); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit()
}
