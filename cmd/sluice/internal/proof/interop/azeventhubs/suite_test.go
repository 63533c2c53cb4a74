package azeventhubs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	hub       = "eventhub"
	linksOnly = "linksonly"
)

// expected are the tests that fail, with the reason.
var expected = map[string]string{
	"TestConsumerClient_Detaches": "it needs Azure Resource Manager, by which it disables the hub",
}

// slow are tests that mostly wait, for ownerships to expire. They are left out unless
// SLUICE_EVENTHUBS_SUITE is "all", as make soak sets it.
const slow = "^(TestProcessor_.*|TestConsumerClient_GeoReplication|TestConsumerClient_Detaches)$"

func TestSuite(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	t.Parallel()
	issuer, variables := interop.StartIssuer(t)
	storage := azurite.New(t, &azurite.Config{TLS: true})
	main, mainCert := namespace(t, &emulator.Config{Issuer: issuer})
	geo, geoCert := namespace(t, &emulator.Config{Issuer: issuer, AsAzure: &emulator.AsAzure{EventHubs: emulator.EventHubsAsAzure{Geo: true}}})
	suite := interop.GoSuite{
		Module: "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2", Expected: expected, AtLeast: 136,
		Certificates: append(append(storage.Certificate(), mainCert...), geoCert...),
		Variables: append(variables,
			"AZURE_RECORD_MODE=live",
			"AZURE_SUBSCRIPTION_ID=none", "RESOURCE_GROUP=none",
			"CHECKPOINTSTORE_STORAGE_ENDPOINT="+storage.URL(),
			"EVENTHUB_NAME="+hub, "EVENTHUB_LINKSONLY_NAME="+linksOnly, "EVENTHUB_NAMESPACE="+address(main),
			"EVENTHUB_CONNECTION_STRING="+connection(main, keys[0]), "EVENTHUB_CONNECTION_STRING_LISTEN_ONLY="+connection(main, keys[1]),
			"EVENTHUB_CONNECTION_STRING_SEND_ONLY="+connection(main, keys[2]),
			"EVENTHUBS_GEODR_NAMESPACE="+address(geo), "EVENTHUBS_GEODR_HUBNAME="+hub, "EVENTHUBS_GEODR_CHECKPOINTSTORE_STORAGE_ENDPOINT="+storage.URL(),
		),
	}
	if os.Getenv("SLUICE_EVENTHUBS_SUITE") != "all" {
		suite.LeftOut = slow
	}
	suite.Run(t)
}

var keys = []emulator.Key{
	{Name: "RootManageSharedAccessKey", Secret: "YWxsIHJpZ2h0cw=="},
	{Name: "ListenOnly", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
	{Name: "SendOnly", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
}

// namespace starts a namespace with the hubs that Azure's own template for these tests makes,
// and returns its certificate in PEM.
func namespace(t *testing.T, cfg *emulator.Config) (*emulator.Server, []byte) {
	cfg.Listen, cfg.TLSListen, cfg.TLSCertOut, cfg.Keys = "-", "localhost:0", filepath.Join(t.TempDir(), "cert.pem"), keys
	srv, err := emulator.Start([]emulator.Hub{{Name: hub, Partitions: 4}, {Name: linksOnly, Partitions: 1}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	cert, err := os.ReadFile(cfg.TLSCertOut)
	if err != nil {
		t.Fatal(err)
	}
	return srv, cert
}

// address is the namespace's name with its port, as the client's certificate check wants it.
func address(srv *emulator.Server) string {
	_, port, _ := strings.Cut(srv.TLSAddr(), ":")
	return "localhost:" + port
}

func connection(srv *emulator.Server, k emulator.Key) string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", address(srv), k.Name, k.Secret)
}
