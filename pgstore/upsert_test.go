package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

func TestUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		url := pgtest.Database(t)
		db := keyedtest.SetUpPostgres(t, url)
		s := open(t, url, nil)
		for partition := range 2 {
			_, err := s.Claim(t.Context(), partitionLease(partition), "1")
			suite.NoError(t, "claim", err)
		}
		return keyedtest.Harness{
			DB: db,
			Step: func(ctx context.Context, partition int, handle func(ctx context.Context, upsert keyedtest.Upsert) error) error {
				step := driver.Step{Lease: partitionLease(partition), From: driver.Unset, To: driver.Unset}
				return s.Commit(ctx, step, func(ctx context.Context, tx pgx.Tx) error {
					return handle(ctx, func(table string, columns []string, rows [][]any, k driver.Keyed) error {
						return pgstore.Upsert(ctx, tx, table, columns, rows, k)
					})
				})
			},
			Row: func(err error) int {
				if refused, ok := errors.AsType[*pgstore.RowError](err); ok {
					return refused.Row
				}
				return -1
			},
			Outage: func(err error) bool { return err != nil && !blames(err) },
			Words:  keyedtest.Postgres,
		}
	})
}

func partitionLease(partition int) driver.Lease {
	return driver.Lease{Group: group, Partition: fmt.Sprint(partition), Owner: "a", Epoch: 1}
}
