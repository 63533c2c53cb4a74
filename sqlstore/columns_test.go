package sqlstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestColumnsAfterAFailure: a column that was changed between two transactions, the later of which
// comes after one that failed by itself. The next write is refused once, whoever asks for the
// columns; what relied on the old ones has learned of it then, and the new ones hold.
func TestColumnsAfterAFailure(t *testing.T) {
	s, l := begun(t, nil)
	suite.NoError(t, "set up", execute(t.Context(), s.DB(), "CREATE TABLE written (id INTEGER PRIMARY KEY, c INTEGER)"))
	broken := errors.New("by the handler")
	id := 0
	write := func(fail error) error {
		return s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			id++
			if err := tx.Insert(ctx, "written", []string{"id", "c"}, [][]any{{id, "1"}}); err != nil {
				return err
			}
			return fail
		})
	}
	suite.NoError(t, "first", write(nil))
	suite.NoError(t, "alter", execute(t.Context(), s.DB(), "ALTER TABLE written DROP COLUMN c; ALTER TABLE written ADD COLUMN c TEXT"))
	if err := write(broken); !errors.Is(err, broken) {
		t.Fatalf("error %v, want the handler's own", err)
	}
	if err := write(nil); err == nil || !strings.Contains(err.Error(), "column c has changed from INTEGER to TEXT") {
		t.Errorf("error %v, want the change", err)
	}
	suite.NoError(t, "after it", write(nil))
	var kept string
	if err := s.DB().QueryRow("SELECT group_concat(id || typeof(c)) FROM written").Scan(&kept); err != nil || kept != "1null,4text" {
		t.Errorf("rows %q, %v", kept, err)
	}
}
