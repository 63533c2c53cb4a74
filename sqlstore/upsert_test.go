package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func TestUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, open(t, filepath.Join(t.TempDir(), "x.db")), keyedtest.SQLite)
	})
}

func TestPostgresUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		url := pgtest.Database(t)
		keyedtest.SetUpPostgres(t, url)
		return keyedHarness(t, openPostgres(t, url, nil), keyedtest.Postgres)
	})
}

func TestMariaDBUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, openMariaDB(t, mariadbtest.Database(t), nil), keyedtest.MySQL)
	})
}

func TestSQLServerUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, openMSSQL(t, sqlservertest.Database(t), nil), keyedtest.SQLServer)
	})
}

func keyedHarness(t testing.TB, s *Store, words keyedtest.Words) keyedtest.Harness {
	t.Helper()
	for partition := range 2 {
		_, err := s.Claim(t.Context(), leaseOf(fmt.Sprint(partition), "a", 1), "1")
		suite.NoError(t, "claim", err)
	}
	return keyedtest.Harness{
		DB: s.DB(),
		Step: func(ctx context.Context, partition int, handle func(ctx context.Context, upsert keyedtest.Upsert) error) error {
			step := driver.Step{Lease: leaseOf(fmt.Sprint(partition), "a", 1), From: driver.Unset, To: driver.Unset}
			return s.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
				return handle(ctx, func(table string, columns []string, rows [][]any, k driver.Keyed) error {
					return tx.Upsert(ctx, table, columns, rows, k)
				})
			})
		},
		Row: func(err error) int {
			if refused, ok := errors.AsType[*RowError](err); ok {
				return refused.Row
			}
			return -1
		},
		Outage: func(err error) bool {
			_, blamed := errors.AsType[*driver.HandlerError](err)
			return err != nil && !blamed
		},
		Words: words,
	}
}
