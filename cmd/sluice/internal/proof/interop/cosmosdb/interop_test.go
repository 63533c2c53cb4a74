package cosmosdb

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestJavaScript(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	run(t, interop.Node, "cosmosdb.js")
}

func TestPython(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	run(t, interop.Python, "cosmosdb.py")
}

// The vectors that the hashes of partition keys are tested with are those that the clients compute
// now.
func TestVectors(t *testing.T) {
	need.Clients(t)
	need.RealTime(t)
	t.Parallel()
	partitionKey := filepath.Join("..", "..", "..", "..", "..", "..", "internal", "partitionkey")
	cosmos := filepath.Join(interop.Installed(t), "node_modules", "@azure", "cosmos")
	interop.SameAs(t, interop.Command(t, interop.Node, filepath.Join(partitionKey, "vectors", "vectors.js"), cosmos), filepath.Join(partitionKey, "testdata", "javascript.json"))
	interop.SameAs(t, interop.Command(t, interop.Python, filepath.Join(partitionKey, "vectors", "vectors.py")), filepath.Join(partitionKey, "testdata", "python.json"))
}

// run starts an account and runs the checks of a client on it.
func run(t *testing.T, program, script string) {
	srv, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	interop.Run(t, program, script, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
}
