//go:build judges

package judges

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
)

func TestJavaScript(t *testing.T) {
	t.Parallel()
	judge(t, interop.Node, "judge.js")
}

func TestPython(t *testing.T) {
	t.Parallel()
	judge(t, interop.Python, "judge.py")
}

// What the hashes of partition keys are tested with is what the clients compute now.
func TestVectors(t *testing.T) {
	t.Parallel()
	epk := filepath.Join("..", "..", "..", "..", "..", "..", "internal", "epk")
	cosmos := filepath.Join(interop.Installed(t), "node_modules", "@azure", "cosmos")
	interop.SameAs(t, interop.Command(t, interop.Node, filepath.Join(epk, "vectors", "vectors.js"), cosmos), filepath.Join(epk, "testdata", "javascript.json"))
	interop.SameAs(t, interop.Command(t, interop.Python, filepath.Join(epk, "vectors", "vectors.py")), filepath.Join(epk, "testdata", "python.json"))
}

// judge has a client check an account of its own.
func judge(t *testing.T, program, script string) {
	srv, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	interop.Judge(t, program, script, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
}
