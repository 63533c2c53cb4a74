package sqlstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// The type of a column changes between two inserts on a connection: the second writes nothing and
// is no failure of its handler, and the next stores the value.
func TestPostgresChangedColumn(t *testing.T) {
	address := pgtest.Database(t)
	s := openPostgres(t, address, &ServerConfig{MaxConns: 1})
	_, err := s.DB().ExecContext(t.Context(), `CREATE TABLE changing (v integer)`)
	suite.NoError(t, "create", err)
	lease := driver.Lease{Group: group, Partition: "0", Owner: "a", Epoch: 1}
	claimed, err := s.Claim(t.Context(), lease, "1")
	suite.NoError(t, "claim", err)
	from := claimed.Position
	insert := func(value any) error {
		to := positionAt(max(from.Sequence, -1) + 1)
		err := s.Commit(t.Context(), driver.Step{Lease: lease, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "changing", []string{"v"}, [][]any{{value}})
		})
		if err == nil {
			from = to
		}
		return err
	}
	suite.NoError(t, "insert", insert(12))
	_, err = s.DB().ExecContext(t.Context(), `TRUNCATE changing; ALTER TABLE changing ALTER v TYPE real`)
	suite.NoError(t, "alter", err)
	err = insert(12)
	if _, handlers := errors.AsType[*driver.HandlerError](err); err == nil || handlers || !strings.Contains(err.Error(), "column v has changed from integer to real") {
		t.Errorf("after the change: %v", err)
	}
	suite.NoError(t, "insert again", insert(12))
	err = insert("twelve")
	if failed, ok := errors.AsType[*RowError](err); !ok || failed.Row != 0 {
		t.Errorf("a text: %v", err)
	}
	if _, handlers := errors.AsType[*driver.HandlerError](err); !handlers {
		t.Errorf("a text: %v, want the handler's failure", err)
	}
	var all string
	suite.NoError(t, "read", s.DB().QueryRowContext(t.Context(), `SELECT string_agg(v::text, ',') FROM changing`).Scan(&all))
	if all != "12" {
		t.Errorf("stored %s", all)
	}
}
