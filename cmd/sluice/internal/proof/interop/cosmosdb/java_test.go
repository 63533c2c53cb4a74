package cosmosdb

import (
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// The client for Java needs TLS.
func TestJava(t *testing.T) {
	need.JavaClients(t)
	need.RealTime(t)
	cert := filepath.Join(t.TempDir(), "cert.pem")
	srv, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{TLS: true, TLSCertOut: cert, Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	interop.RunJava(t, "java", "Checks", cert, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
}
