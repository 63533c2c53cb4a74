package pgstore_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/pgstore"
)

// TestInsertLosesItsConnection: InsertFunc returns when no row is being made any more, also where
// the server has ended the session meanwhile: its rows would get into the memory of another insert.
func TestInsertLosesItsConnection(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `CREATE TABLE lost (n int)`); err != nil {
		t.Fatal(err)
	}
	var making atomic.Bool
	calls := 0
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		pid := tx.Conn().PgConn().PID()
		err := pgstore.InsertFunc(ctx, tx, "lost", []string{"n"}, 100_000, func(i int) ([]any, error) {
			making.Store(true)
			defer making.Store(false)
			if calls++; i == 50_000 {
				if _, err := s.Pool().Exec(ctx, `SELECT pg_terminate_backend($1)`, pid); err != nil {
					t.Errorf("end the session: %v", err)
				}
				for there := 1; there > 0; {
					if err := s.Pool().QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&there); err != nil {
						t.Errorf("look for the session: %v", err)
						break
					}
				}
				for range 50 { // time for the insert to notice
					_ = s.Pool().Ping(ctx)
				}
			}
			return []any{i}, nil
		})
		if making.Load() {
			t.Error("InsertFunc has returned while a row is being made")
		}
		return err
	})
	if err == nil {
		t.Error("committed")
	}
}
