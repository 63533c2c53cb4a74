package kafka

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pgstore"
)

func intoPostgreSQL(t *testing.T) target {
	server := pgtest.New(t, nil)
	url, err := server.CreateDatabase(t.Context(), "effects")
	suite.NoError(t, "create a database", err)
	store, err := pgstore.Open(t.Context(), url, nil)
	suite.NoError(t, "open PostgreSQL", err)
	t.Cleanup(store.Close)
	_, err = store.Pool().Exec(t.Context(), "CREATE TABLE effects (effect text)")
	suite.NoError(t, "create a table", err)
	handler := sluice.Each(func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", effect(e.Partition, e.Sequence, e.Key, e.Body))
		return err
	})
	return target{sluice.Transactional(store, handler), store.Leases(), func(t *testing.T) []string {
		rows, err := store.Pool().Query(t.Context(), "SELECT effect FROM effects")
		suite.NoError(t, "query", err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		suite.NoError(t, "rows", err)
		return list
	}}
}
