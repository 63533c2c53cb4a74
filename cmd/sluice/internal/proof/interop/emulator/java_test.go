package emulator

import (
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// The program keeps its processors' checkpoints in a storage account.
func TestJavaEventHubs(t *testing.T) {
	need.Azurite(t)
	need.JavaClients(t)
	need.RealTime(t)
	storage, err := azurite.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := storage.Close(); err != nil {
			t.Errorf("close Azurite: %v", err)
		}
	})
	environment := append(eventHubs(t), "STORAGE="+storage.ConnectionString())
	interop.RunJava(t, "java", "EventHubs", trusted(environment), environment...)
}

func TestJavaServiceBus(t *testing.T) {
	need.JavaClients(t)
	need.RealTime(t)
	environment := namespaces(t)
	interop.RunJava(t, "java", "ServiceBus", trusted(environment), environment...)
}

// trusted is the file of the certificates that clients trust.
func trusted(environment []string) string {
	for _, variable := range environment {
		if file, ok := strings.CutPrefix(variable, "NODE_EXTRA_CA_CERTS="); ok {
			return file
		}
	}
	return ""
}
