//go:build interop_java

package cosmosdb

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
)

// The client for Java needs TLS, and a store of the certificates that it trusts.
func TestJava(t *testing.T) {
	installed := interop.InstalledJava(t)
	work := t.TempDir()
	cert, trust := filepath.Join(work, "cert.pem"), filepath.Join(work, "trust.p12")
	srv, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{TLS: true, TLSCertOut: cert, Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the account: %v", err)
		}
	})
	jars := filepath.Join(installed, "jars", "*")
	for _, args := range [][]string{
		{"keytool", "-importcert", "-noprompt", "-alias", "emulator", "-file", cert, "-keystore", trust, "-storetype", "PKCS12", "-storepass", "changeit"},
		{"javac", "-nowarn", "-cp", jars, "-d", work, filepath.Join("java", "Checks.java")},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "java", "-Djavax.net.ssl.trustStore="+trust, "-Djavax.net.ssl.trustStorePassword=changeit", "-cp", jars+":"+work, "Checks")
	interop.RunCommand(t, cmd, "ENDPOINT="+srv.Endpoint(), "KEY="+srv.Key(), "CONTROL=http://"+srv.ControlAddr())
}
