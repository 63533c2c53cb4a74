package pythonsuites

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const (
	domain      = ".servicebus.windows.net"
	blobStorage = azurite.Account + ".blob.core.windows.net"
	keyName     = "RootManageSharedAccessKey"
	key         = "YWxsIHJpZ2h0cw=="
	hubs        = 400 // each test takes a new one
)

func TestEventHubs(t *testing.T) {
	need.PythonSuites(t)
	need.RealTime(t)
	issuer, variables := interop.StartIssuer(t)
	storage := azurite.New(t, &azurite.Config{TLS: true})
	unused := t.TempDir()
	all := make([]emulator.Hub, hubs)
	for i := range all {
		all[i] = emulator.Hub{Name: fmt.Sprintf("eh%03d", i), Partitions: 2}
		if err := os.WriteFile(filepath.Join(unused, all[i].Name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := emulator.Start(all, &emulator.Config{Issuer: issuer, Keys: []emulator.Key{{Name: keyName, Secret: key}}, Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(storage.Certificate())
	storageAddress := strings.TrimSuffix(strings.TrimPrefix(storage.URL(), "https://"), "/"+azurite.Account)
	variables = append(variables, front(t, map[string]interop.Dial{
		"tests" + domain: func() (net.Conn, error) { return net.Dial("tcp", srv.Addr()) },
		blobStorage:      overTLS(storageAddress, trusted),
	})...)
	variables = append(variables,
		"EVENTHUB_RESOURCE_GROUP=none", "AZURE_SUBSCRIPTION_ID=none", "EVENT_HUB_NAMESPACE=tests", "AZURE_STORAGE_ACCOUNT="+azurite.Account,
		"KEY_NAME="+keyName, "KEY="+key, "UNUSED_HUBS="+unused, "CONTROL=http://"+srv.ControlAddr(),
	)
	t.Run("client", func(t *testing.T) {
		suite := interop.PythonSuite{
			Dir: "azure-eventhub/tests", Tests: []string{"livetest", "unittest", "pyamqp_tests"}, Processes: "6", Shim: "shim", Timeout: 10 * time.Minute,
			AtLeast: 340, Variables: variables,
		}
		suite.Run(t)
	})
	t.Run("checkpoint store", func(t *testing.T) {
		suite := interop.PythonSuite{Dir: "azure-eventhub-checkpointstoreblob/tests", Tests: []string{"."}, Shim: "shim", AtLeast: 2, Variables: variables}
		suite.Run(t)
	})
}

var keys = []emulator.Key{
	{Name: "ListenManageSend", Secret: "YWxsIHJpZ2h0cw=="},
	{Name: "Listen", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
	{Name: "Send", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
}

func TestServiceBus(t *testing.T) {
	need.PythonSuites(t)
	need.RealTime(t)
	issuer, variables := interop.StartIssuer(t)
	standard, management := namespace(t, issuer), namespace(t, issuer)
	variables = append(variables, front(t, map[string]interop.Dial{
		"standard" + domain:   overTLS(standard.TLSAddr(), standard.CertPool()),
		"management" + domain: overTLS(management.TLSAddr(), management.CertPool()),
	})...)
	for _, k := range keys {
		variables = append(variables, "KEY_"+strings.ToUpper(k.Name)+"="+k.Secret)
	}
	variables = append(variables,
		"SERVICEBUS_FULLY_QUALIFIED_NAMESPACE=management"+domain, "SERVICEBUS_SAS_POLICY="+keys[0].Name, "SERVICEBUS_SAS_KEY="+keys[0].Secret,
		"SERVICEBUS_CONNECTION_STR=Endpoint=sb://management"+domain+"/;SharedAccessKeyName="+keys[0].Name+";SharedAccessKey="+keys[0].Secret,
	)
	t.Run("management", func(t *testing.T) { // tests that want the namespace for themselves
		t.Parallel()
		suite := interop.PythonSuite{
			Dir: "azure-servicebus/tests", Tests: []string{"mgmt_tests"}, Shim: "shim", Expected: managementExpected, AtLeast: 80, Variables: variables,
		}
		suite.Run(t)
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		suite := interop.PythonSuite{
			Dir: "azure-servicebus/tests", Tests: []string{".", "--ignore=mgmt_tests", "--ignore=perf_tests"}, Processes: "8", Shim: "shim", Timeout: 10 * time.Minute,
			Expected: serviceBusExpected, Sometimes: serviceBusSometimes, AtLeast: 620, Variables: variables,
		}
		suite.Run(t)
	})
}

// namespace starts a Service Bus namespace.
func namespace(t *testing.T, issuer *emulator.Issuer) *emulator.ServiceBus {
	srv, err := emulator.StartServiceBus(nil, nil, &emulator.ServiceBusConfig{Listen: "-", TLSListen: "127.0.0.1:0", Issuer: issuer, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	return srv
}

// front starts a front for the servers, and returns the variables that lead the clients to it.
func front(t *testing.T, servers map[string]interop.Dial) []string {
	f := interop.StartFront(t, servers)
	trusted := filepath.Join(t.TempDir(), "trusted.pem")
	if err := os.WriteFile(trusted, f.Certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range servers {
		names = append(names, name)
	}
	return []string{"FRONT=" + f.Address, "FRONT_NAMES=" + strings.Join(names, " "), "SSL_CERT_FILE=" + trusted, "REQUESTS_CA_BUNDLE=" + trusted}
}

// overTLS connects to a server whose certificate is trusted.
func overTLS(address string, trusted *x509.CertPool) interop.Dial {
	cfg := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	return func() (net.Conn, error) { return tls.Dial("tcp", address, cfg) }
}
