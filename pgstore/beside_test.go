package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

// movesFirst is a step of a program that moves the checkpoint before its handler runs, and locks it
// thereby. Other programs of the group may do so.
const movesFirst = `
UPDATE sluice_checkpoints SET sequence_number = $8, updated_at = clock_timestamp(), claims = 1
WHERE namespace = $1 AND topic = $2 AND consumer_group = $3 AND partition = $4 AND owner = $5 AND epoch = $6 AND sequence_number = $7`

func stepMovingFirst(ctx context.Context, s *pgstore.Store, step driver.Step, fn func(context.Context, pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.Pool(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		g := step.Lease.Group
		tag, err := tx.Exec(ctx, movesFirst, g.Namespace, g.Topic, g.Name, step.Lease.Partition, step.Lease.Owner, step.Lease.Epoch, step.From.Sequence, step.To.Sequence)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() != 1:
			return driver.ErrFenced
		}
		return fn(ctx, tx)
	})
}

// TestBesideStepsThatMoveFirst: programs of both orders take a partition from each other, and step
// at the same time under the same lease. Each event has its effect once.
func TestBesideStepsThatMoveFirst(t *testing.T) {
	const events = 60
	s := open(t, pgtest.Database(t), patient)
	createEffects(t, s)
	orders := []func(context.Context, *pgstore.Store, driver.Step, func(context.Context, pgx.Tx) error) error{
		func(ctx context.Context, s *pgstore.Store, step driver.Step, fn func(context.Context, pgx.Tx) error) error {
			return s.Commit(ctx, step, fn)
		},
		stepMovingFirst,
	}
	var want []string
	for n := range events {
		want = append(want, fmt.Sprint(n))
	}
	for epoch := int64(1); ; epoch++ {
		l := lease(fmt.Sprint("owner ", epoch%2), epoch)
		p := claim(t, s, l).Position
		if p.Sequence >= events-1 {
			break
		}
		var all sync.WaitGroup
		results := make([]error, 4)
		for i := range results { // of one lease, from one position
			all.Go(func() {
				results[i] = orders[(i+int(l.Epoch))%2](t.Context(), s, driver.Step{Lease: l, From: p, To: positionAt(max(p.Sequence, -1) + 1)}, func(ctx context.Context, tx pgx.Tx) error {
					return put(ctx, tx, fmt.Sprint(max(p.Sequence, -1)+1))
				})
			})
		}
		if epoch%3 == 0 { // another owner claims meanwhile
			epoch++
			next := lease("another", epoch)
			all.Go(func() {
				_, err := s.Claim(t.Context(), next, "1")
				suite.NoError(t, "claim meanwhile", err)
			})
		}
		all.Wait()
		done := 0
		for _, err := range results {
			if err == nil {
				done++
			} else if !errors.Is(err, driver.ErrFenced) {
				t.Errorf("step beside others: %v", err)
			}
		}
		if done > 1 {
			t.Errorf("%d of four steps from %v were done", done, p)
		}
	}
	slices.Sort(want)
	got, err := readEffects(t.Context(), s.Pool())
	suite.NoError(t, "effects", err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("effects are %q, want each of %d once", got, events)
	}
}
