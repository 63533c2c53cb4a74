package stream_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// scene is an [enginetest.Scene] with what only these tests ask of it.
type scene struct{ *enginetest.Scene }

// stage runs a test in a scene of its own.
func stage(t *testing.T, partitions int, run func(*scene)) {
	t.Helper()
	enginetest.Stage(t, partitions, func(s *enginetest.Scene) { run(&scene{s}) })
}

func TestMain(m *testing.M) { enginetest.Main(m) }
