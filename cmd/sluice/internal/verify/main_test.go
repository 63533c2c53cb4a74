package verify

import (
	"os"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// servers run the tests, each with a server for them.
var servers []func(run func() int) int

func TestMain(m *testing.M) { os.Exit(testserver.RunAll(m.Run, servers...)) }
