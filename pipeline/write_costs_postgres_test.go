package pipeline

import (
	"context"
	"math"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// roundTrips counts those of a connection, by what pgx reports. Each of these is one.
type roundTrips struct{ batches, copies, prepared, queries int }

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.batches++
	return ctx
}
func (*roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (r *roundTrips) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	r.copies++
	return ctx
}
func (*roundTrips) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func (*roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return ctx
}

func (r *roundTrips) TracePrepareEnd(_ context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	if !data.AlreadyPrepared {
		r.prepared++
	}
}

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.queries++
	return ctx
}
func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A batch takes three round trips (begin and fence; COPY; commit), and an event next to no
// allocations, from the mapping to the socket.
func TestPostgresWriteCosts(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	trips := &roundTrips{}
	config.ConnConfig.Tracer, config.MaxConns = trips, 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.New(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := pool.Exec(t.Context(), `CREATE TABLE readings (hub_partition text, sequence_number bigint, device text, at timestamptz, delay integer, distance integer, payload text)`); err != nil {
		t.Fatal(err)
	}
	lease := driver.Lease{Group: sluice.Group{Namespace: "n", Topic: "t", Name: "g"}, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := store.Claim(t.Context(), lease, "1")
	if err != nil {
		t.Fatal(err)
	}
	events, from := costEvents(2000), claimed.Position
	handler := (&tableTarget{rowTarget: rowTarget{dialect: &postgresDialect, mapping: mappingOf(t, costColumns)}, table: "readings"}).postgresHandler()
	commit := func() {
		t.Helper()
		to := driver.Position{Sequence: from.Sequence + int64(len(events))}
		err := store.Commit(t.Context(), driver.Step{Lease: lease, From: from, To: to}, func(ctx context.Context, tx pgx.Tx) error {
			return handler(ctx, tx, sluice.Batch{Events: events})
		})
		if err != nil {
			t.Fatal(err)
		}
		from = to
	}
	commit() // prepares
	*trips = roundTrips{}
	const measured, batches = 3, 10
	// The figures are those of the process: the least of a few has least of what else allocates.
	mallocs, bytes := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for range measured {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range batches {
			commit()
		}
		runtime.ReadMemStats(&after)
		mallocs, bytes = min(mallocs, after.Mallocs-before.Mallocs), min(bytes, after.TotalAlloc-before.TotalAlloc)
	}
	if want := (roundTrips{batches: measured * 2 * batches, copies: measured * batches}); *trips != want {
		t.Errorf("%d batches took %+v, want %+v", measured*batches, *trips, want)
	}
	all := float64(batches * len(events))
	if each := float64(mallocs) / all; each > 0.25 {
		t.Errorf("an event takes %.2f allocations", each)
	}
	if each := float64(bytes) / all; each > 200 {
		t.Errorf("an event of %d bytes takes %.0f bytes", len(events[0].Body), each)
	}
}
