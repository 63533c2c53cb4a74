package audit_test

import (
	"database/sql"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/internal/proof/sqlgrammar"
)

// sent returns what a ledger sends to a database.
func sent(t *testing.T, dialect audit.Dialect) []string {
	t.Helper()
	r := &sqlgrammar.Recorder{}
	db := sql.OpenDB(r)
	defer db.Close()
	view, err := audit.NewSQLLedger(db, dialect, audit.Table{Name: "flights", Partition: "hub_partition", Sequence: "sequence_number"},
		audit.Table{Name: "delays", Partition: "p", Sequence: "n"}).Open(t.Context(), sluice.Topic{}, "0")
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	if _, there, err := view.Checkpoint(t.Context()); there || err != nil {
		t.Errorf("a checkpoint: %t, %v", there, err)
	}
	for range view.Entries(t.Context()) {
		t.Error("there is an entry")
	}
	return r.Texts()
}

// TestSentStatements: every statement in the source is among those that TestGrammar checks.
func TestSentStatements(t *testing.T) {
	sqlgrammar.MustHaveAll(t, "sqlledger.go", sent(t, audit.MySQL()))
}
