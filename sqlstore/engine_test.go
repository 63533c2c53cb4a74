package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// A handler that writes two tables and fails in the second for some events, by
// an error or by a constraint: no event is done by half, and its neighbours are
// done.
func TestTwoTables(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	const events = 2000
	bodies := make([]string, events)
	bad := 0
	for i := range bodies {
		switch bodies[i] = fmt.Sprint(i % 10); i % 100 {
		case 7:
			bodies[i] = "10" // more than the second table takes
			bad++
		case 63:
			bodies[i] = "error"
			bad++
		}
	}
	handler := sluice.Each(func(ctx context.Context, tx *Tx, e *sluice.Event) error {
		if err := put(ctx, tx, fmt.Sprintf("%s/%d", e.Partition, e.Sequence)); err != nil {
			return err
		}
		if string(e.Body) == "error" {
			return errors.New("no")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO children (small) VALUES (CAST(? AS INTEGER))", string(e.Body))
		return err
	})
	result := sluicetest.Run(t, s, handler, sluicetest.Bodies(bodies...), nil)
	if len(result.DeadLetters) != bad {
		t.Errorf("%d dead letters, want %d", len(result.DeadLetters), bad)
	}
	var rows, keys, second int
	if err := s.DB().QueryRow("SELECT count(*), count(DISTINCT key), (SELECT count(*) FROM children) FROM effects").Scan(&rows, &keys, &second); err != nil {
		t.Fatal(err)
	}
	if want := events - bad; rows != want || keys != want || second != want {
		t.Errorf("%d effects of %d keys and %d in the second table, want %d", rows, keys, second, want)
	}
}
