package targetaudit

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
)

func TestDatabasesThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	if _, _, err := openDatabase("sqlite:" + filepath.Join(t.TempDir(), "x.db")); err == nil || !strings.HasSuffix(err.Error(), "x.db: no such file or directory: has the pipeline run yet?") {
		t.Error(err)
	}
	db, dialect, err := openDatabase("postgres://user:secret@127.0.0.1:1/x?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = audit.NewSQLLedger(db, dialect, audit.Table{}).Open(t.Context(), sluice.Topic{}, "0")
	if err == nil || !strings.HasSuffix(err.Error(), "connect to PostgreSQL at 127.0.0.1:1, database x, as user: connection refused: check host and port, and whether the server runs") || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	bad, dialect, err := openDatabase("postgres://user:secret@127.0.0.1:port/x")
	if err == nil {
		defer bad.Close()
		_, err = audit.NewSQLLedger(bad, dialect, audit.Table{}).Open(t.Context(), sluice.Topic{}, "0")
	}
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
