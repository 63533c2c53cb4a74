package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestMariaDBUnsafeTables: Insert writes to no table whose engine has no transactions, and the
// error is an outage: the events wait until the table is changed.
func TestMariaDBUnsafeTables(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	for name, create := range map[string]string{
		"InnoDB": "CREATE TABLE x (n BIGINT) ENGINE = InnoDB", "MyISAM": "CREATE TABLE x (n BIGINT) ENGINE = MyISAM",
		"Aria": "CREATE TABLE x (n BIGINT) ENGINE = Aria TRANSACTIONAL = 1", "MEMORY": "CREATE TABLE x (n BIGINT) ENGINE = MEMORY",
		"view": "CREATE VIEW x AS SELECT part AS n FROM effects",
	} {
		t.Run(name, func(t *testing.T) {
			kind := "TABLE"
			if name == "view" {
				kind = "VIEW"
			}
			_, err := s.DB().ExecContext(t.Context(), create)
			suite.NoError(t, "create", err)
			defer func() {
				_, err := s.DB().ExecContext(context.WithoutCancel(t.Context()), "DROP "+kind+" x")
				suite.NoError(t, "drop", err)
			}()
			s.safe.Clear()
			err = inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				if err := tx.Insert(ctx, "x", []string{"n"}, [][]any{{1}}); err != nil && name == "Aria" {
					return errors.New(err.Error()) // a handler that keeps the text alone
				}
				return nil // another drops the error
			})
			var rows int
			_, counted := one(t.Context(), s.reader, "SELECT COUNT(*) FROM x", nil, &rows)
			suite.NoError(t, "count", counted)
			_, ofHandler := errors.AsType[*driver.HandlerError](err)
			switch {
			case name == "InnoDB" && (err != nil || rows != 1):
				t.Errorf("%d rows, %v", rows, err)
			case name != "InnoDB" && (!errors.Is(err, driver.ErrUnsafeTable) || ofHandler || rows != 0):
				t.Errorf("%d rows, %v; want no row and an outage that is ErrUnsafeTable", rows, err)
			}
		})
	}
}

// TestMariaDBKeptRows: a statement of the handler's writes to a table without transactions, and the
// step is rolled back. The rows stay, so that the partition must halt: a repetition would double
// them.
func TestMariaDBKeptRows(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE kept (n BIGINT) ENGINE = MyISAM")
	suite.NoError(t, "create", err)
	for _, failure := range []error{errors.New("refused"), nil} {
		t.Run(fmt.Sprint(failure), func(t *testing.T) {
			err := inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO kept VALUES (1)"); err != nil {
					return err
				}
				return failure
			})
			halts := errors.Is(err, driver.ErrHandlerEnded) && strings.Contains(err.Error(), "a table without transactions, perhaps a temporary one, has kept")
			if halts != (failure != nil) {
				t.Errorf("%v: halts %v", err, halts)
			}
		})
	}
	err = inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (`key`) VALUES ('undone')")
		suite.NoError(t, "insert", err)
		return errors.New("refused")
	})
	if errors.Is(err, driver.ErrHandlerEnded) {
		t.Errorf("a rollback that undoes everything: %v", err)
	}
}

// TestMariaDBOwnTables: a store does not open if a table of its own is not safe any more.
func TestMariaDBOwnTables(t *testing.T) {
	url := mariadbtest.Database(t)
	s := openMariaDB(t, url, nil)
	suite.NoError(t, "check", CheckMySQL(t.Context(), url, nil))
	_, err := s.DB().ExecContext(t.Context(), "ALTER TABLE sluice_seen ENGINE = MyISAM")
	suite.NoError(t, "alter", err)
	_, err = OpenMySQL(t.Context(), url, nil)
	for what, err := range map[string]error{"open": err, "check": CheckMySQL(t.Context(), url, nil)} {
		if !errors.Is(err, driver.ErrUnsafeTable) || !strings.Contains(fmt.Sprint(err), "ALTER TABLE sluice_seen ENGINE = InnoDB") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
