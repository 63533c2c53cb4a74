package emulator

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestJavaScript(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	interop.Run(t, interop.Node, "eventhubs.js", eventHubs(t)...)
}

func TestPython(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	interop.Run(t, interop.Python, "eventhubs.py", eventHubs(t)...)
}

func TestServiceBus(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	interop.Run(t, interop.Node, "servicebus.js", namespaces(t)...)
}

// The vectors that the hash of partition keys is tested with are those that the client computes
// now.
func TestVectors(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	interop.SameAs(t, interop.Command(t, interop.Node, "vectors.js"), filepath.Join("..", "..", "..", "..", "..", "..", "internal", "partitionkey", "testdata", "eventhubs.json"))
}
