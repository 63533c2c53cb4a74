package azure_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/autoscaletest"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// names makes queues and tables apart.
var names atomic.Int64

func openStore(t testing.TB) *azure.Store {
	t.Helper()
	s, err := azure.OpenStore(t.Context(), &azure.Config{Connection: azurite.Connection(t), Table: fmt.Sprintf("Scaling%d", names.Add(1))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openQueue(t testing.TB, lock time.Duration) *azure.Queue {
	t.Helper()
	q, err := azure.OpenQueue(t.Context(), fmt.Sprintf("metrics%d", names.Add(1)), &azure.Config{Connection: azurite.Connection(t), Lock: lock, Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestStore(t *testing.T) {
	need.Azurite(t)
	t.Parallel()
	autoscaletest.TestStore(t, func(t testing.TB) autoscale.Store { return openStore(t) })
}

func TestQueue(t *testing.T) {
	need.Azurite(t)
	t.Parallel()
	autoscaletest.TestQueue(t, func(t testing.TB, lock time.Duration) autoscaletest.Queue {
		q := openQueue(t, lock)
		return autoscaletest.Queue{Queue: q, DeadLetters: q.DeadLetters}
	})
}

func TestMain(m *testing.M) {
	if name := os.Getenv(partVariable); name != "" {
		fmt.Fprintln(os.Stderr, name, part(name)) // it ends for an error only
		os.Exit(1)
	}
	os.Exit(m.Run())
}
