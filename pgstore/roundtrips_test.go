package pgstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/roundtrips"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

// TestRoundTrips: begin and lock; dead letters, move and commit. A handler's statement is one more,
// and so is the check of dead letters that were redriven.
func TestRoundTrips(t *testing.T) {
	var wire roundtrips.Counter
	pc, err := pgxpool.ParseConfig(pgtest.Database(t))
	suite.NoError(t, "parse", err)
	pc.ConnConfig.DialFunc, pc.MaxConns = wire.Dial, 1
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	suite.NoError(t, "pool", err)
	t.Cleanup(pool.Close)
	s, err := pgstore.New(t.Context(), pool, patient)
	suite.NoError(t, "open", err)
	t.Cleanup(s.Close)
	createEffects(t, s)
	l := lease("a", 1)
	claim(t, s, l)
	from := driver.Unset
	step := func(what string, want int64, todo driver.Step, fn func(context.Context, pgx.Tx) error) {
		t.Helper()
		for n := range 2 { // the first one prepares the statements
			todo.Lease, todo.From, todo.To = l, from, positionAt(max(from.Sequence, -1)+1)
			if todo.Redriven != nil {
				todo.Redriven = []int64{marked(t, s, todo.To.Sequence)}
			}
			wire.Take()
			suite.NoError(t, what, s.Commit(t.Context(), todo, fn))
			if trips, _ := wire.Take(); n > 0 && trips != want {
				t.Errorf("%s takes %d round trips, want %d", what, trips, want)
			}
			from = todo.To
		}
	}
	insert := func(ctx context.Context, tx pgx.Tx) error { return put(ctx, tx, "x") }
	step("a step without a handler", 2, driver.Step{}, nil)
	step("a step with one statement", 3, driver.Step{}, insert)
	letters := []driver.DeadLetter{{Group: group, Incarnation: "1", Error: "no", Status: driver.StatusDead, Event: driver.Event{Partition: "0", Sequence: 1000}}}
	step("a step with a dead letter", 3, driver.Step{DeadLetters: letters}, insert)
	step("a step with a redrive", 4, driver.Step{Redriven: []int64{}}, insert)
}

// marked stores a dead letter that is marked for redrive, and returns its ID.
func marked(t *testing.T, s *pgstore.Store, sequence int64) (id int64) {
	t.Helper()
	letter := driver.DeadLetter{Group: group, Incarnation: "1", Error: "no", Status: driver.StatusRetry, Event: driver.Event{Partition: "0", Sequence: sequence}}
	suite.NoError(t, "park", s.Park(t.Context(), []driver.DeadLetter{letter}))
	err := s.Pool().QueryRow(t.Context(), `SELECT id FROM sluice_dead_letters WHERE sequence_number = $1`, sequence).Scan(&id)
	suite.NoError(t, "id", err)
	return id
}
