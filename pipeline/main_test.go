package pipeline

import (
	"os"
	"testing"
)

// servers run the tests, each with a server for them.
var servers []func(run func() int) int

func TestMain(m *testing.M) {
	run := m.Run
	for _, server := range servers {
		inner := run
		run = func() int { return server(inner) }
	}
	os.Exit(run())
}
