//go:build postgres

package crash

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

func run(m *testing.M) int { return pgtest.Run(m) }

func init() {
	databases["postgres"] = func(ctx context.Context, url string) (sluice.Delivery, sluice.LeaseStore, error) {
		s, err := pgstore.Open(ctx, url, nil)
		if err != nil {
			return nil, nil, err
		}
		return sluice.Transactional(s, handler(func(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		})), s.Leases(), nil
	}
}

func postgres(t *testing.T) (database string, n count) {
	url := pgtest.Database(t)
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Pool().Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return url, func(query string) int {
		n := -1
		_ = s.Pool().QueryRow(t.Context(), query).Scan(&n)
		return n
	}
}

func TestKilledHalfWayPostgreSQL(t *testing.T) {
	database, n := postgres(t)
	killedHalfWay(t, database, n)
}

func TestKillerIsParkedPostgreSQL(t *testing.T) {
	database, n := postgres(t)
	killerIsParked(t, database, n)
}
