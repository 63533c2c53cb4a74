//go:build judges

package judges

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/judging"
)

func TestJavaScript(t *testing.T) {
	t.Parallel()
	judge(t, judging.Node, "judge.js")
}

func TestPython(t *testing.T) {
	t.Parallel()
	judge(t, judging.Python, "judge.py")
}

// What the hashes of partition keys are tested with is what the clients compute now.
func TestVectors(t *testing.T) {
	t.Parallel()
	epk := filepath.Join("..", "..", "epk")
	cosmos := filepath.Join(judging.Installed(t), "node_modules", "@azure", "cosmos")
	judging.SameAs(t, judging.Command(t, judging.Node, filepath.Join(epk, "vectors", "vectors.js"), cosmos), filepath.Join(epk, "testdata", "javascript.json"))
	judging.SameAs(t, judging.Command(t, judging.Python, filepath.Join(epk, "vectors", "vectors.py")), filepath.Join(epk, "testdata", "python.json"))
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
	judging.Judge(t, program, script, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
}
