package pipeline

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

// Whoever names a group for a store finds it in the only spelling that the store has, and as it is
// written if the store has several.
func TestStoredGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := sqlstore.OpenSQLite(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lower, upper := driver.Group{Namespace: "ns", Topic: "billing", Name: "group"}, driver.Group{Namespace: "ns", Topic: "Billing", Name: "Group"}
	opened := func(group driver.Group) driver.Group {
		t.Helper()
		stores, err := OpenDatabase(t.Context(), "sqlite:"+path, group)
		if err != nil {
			t.Fatal(err)
		}
		defer stores.Close(t.Context())
		return stores.Group
	}
	if got := opened(upper); got != upper {
		t.Errorf("a store without the group: %v, want %v", got, upper)
	}
	for _, g := range []driver.Group{lower, upper} {
		if _, err := s.Claim(t.Context(), driver.Lease{Group: g, Partition: "0", Owner: "a", Epoch: 1}, "1"); err != nil {
			t.Fatal(err)
		}
		want := upper // both are there
		if g == lower {
			want = lower
		}
		if got := opened(upper); got != want {
			t.Errorf("after %v was stored: %v, want %v", g, got, want)
		}
	}
}
