package sqlstore_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/autoscaletest"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func open(t testing.TB) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.OpenSQLite(filepath.Join(t.TempDir(), "state ?#%.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	for _, c := range suite.Cases(func(t *testing.T) {
		autoscaletest.TestStore(t, func(t testing.TB) autoscale.Store { return open(t) })
	}) {
		t.Run(c.Name, func(t *testing.T) {
			if strings.Contains(c.Name, "expires") {
				need.RealTime(t)
			}
			c.Run(t)
		})
	}
}

func TestQueue(t *testing.T) {
	autoscaletest.TestQueue(t, func(t testing.TB, lock time.Duration) autoscaletest.Queue {
		s := open(t)
		if err := s.Queue("other", lock).Send(t.Context(), []byte("of another queue")); err != nil {
			t.Fatal(err)
		}
		q := s.Queue("metrics", lock)
		return autoscaletest.Queue{Queue: q, DeadLetters: q.DeadLetters}
	})
}
