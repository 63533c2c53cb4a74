package partition_test

import (
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// scene is an [enginetest.Scene] with what only these tests ask of it.
type scene struct {
	*enginetest.Scene
	memory *sluice.Memory    // of some consumers
	leases driver.LeaseStore // likewise; nil: Leases
}

// stage runs a test in a scene of its own.
func stage(t *testing.T, partitions int, run func(*scene)) {
	t.Helper()
	enginetest.Stage(t, partitions, func(s *enginetest.Scene) { run(&scene{Scene: s}) })
}

// sparse is [stage] with a topic whose numbers may be missing.
func sparse(t *testing.T, run func(*scene)) {
	t.Helper()
	enginetest.StageSparse(t, func(s *enginetest.Scene) { run(&scene{Scene: s}) })
}

func TestMain(m *testing.M) { enginetest.Main(m) }
