package sqlstore

import (
	"path/filepath"
	"testing"
)

// TestCommitsAreOnDisk checks that SQLite waits for the disk at each commit, on all
// connections that write: only a loss of power would show that it does not.
func TestCommitsAreOnDisk(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	const full = 2
	var mode int
	if err := s.writer.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&mode); err != nil || mode != full {
		t.Errorf("synchronous of the connection that writes: %d, %v; want %d", mode, err, full)
	}
	if err := s.leases.db.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&mode); err != nil || mode != full {
		t.Errorf("synchronous of the leases' connection: %d, %v; want %d", mode, err, full)
	}
}
