package cosmos_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/autoscale/target/cosmos"
)

// manager is a stand-in for Azure Resource Manager with the throughput of one container
// and of its database. A change is done at once, or goes on for ever.
type manager struct {
	mu      sync.Mutex
	setting map[string]string // the resource, by path
	pending bool              // changes go on
	refuse  string            // the code of a refusal
}

const (
	databasePath  = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.DocumentDB/databaseAccounts/contoso/sqlDatabases/db/throughputSettings/default"
	containerPath = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.DocumentDB/databaseAccounts/contoso/sqlDatabases/db/containers/docs/throughputSettings/default"
	operationPath = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.DocumentDB/locations/westeurope/operationsStatus/1"
)

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"code": %q, "message": "because"}}`, code)
	}
	if r.URL.Path == operationPath {
		fmt.Fprint(w, `{"status": "InProgress"}`)
		return
	}
	current, found := m.setting[r.URL.Path]
	switch {
	case r.Header.Get("Authorization") == "":
		answer(http.StatusUnauthorized, "AuthenticationFailed")
	case r.URL.Query().Get("api-version") != "2024-11-15":
		answer(http.StatusBadRequest, "InvalidApiVersionParameter")
	case !found:
		answer(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodGet:
		fmt.Fprintf(w, `{"id": %q, "properties": {"resource": %s}}`, r.URL.Path, current)
	case m.refuse != "":
		answer(http.StatusForbidden, m.refuse)
	default:
		var change struct {
			Properties struct{ Resource json.RawMessage }
		}
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil || r.Method != http.MethodPut {
			answer(http.StatusBadRequest, "BadRequest")
			return
		}
		if m.pending {
			m.setting[r.URL.Path] = strings.TrimSuffix(current, "}") + `, "offerReplacePending": "true"}`
			w.Header().Set("Azure-AsyncOperation", "https://"+r.Host+operationPath+"?api-version=2024-11-15")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		m.setting[r.URL.Path] = string(change.Properties.Resource)
		fmt.Fprintf(w, `{"properties": {"resource": %s}}`, change.Properties.Resource)
	}
}

func (m *manager) config(t *testing.T) cosmos.Config {
	server := httptest.NewTLSServer(m)
	t.Cleanup(server.Close)
	at := cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: server.URL, Audience: "manager"}}}
	return cosmos.Config{
		Endpoint: "https://contoso.documents.azure.com:443/", Credential: &azfake.TokenCredential{},
		Subscription: "00000000-0000-0000-0000-000000000000", ResourceGroup: "shop", Database: "db", Container: "docs", Accept: 50 * time.Millisecond,
		Manager: &arm.ClientOptions{ClientOptions: azcore.ClientOptions{Cloud: at, Transport: server.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}},
	}
}

func managed(t *testing.T, cfg cosmos.Config) *cosmos.Target {
	t.Helper()
	target, err := cosmos.New(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func instances(t *testing.T, target *cosmos.Target, want int) {
	t.Helper()
	if n, err := target.Instances(t.Context()); err != nil || n != want {
		t.Errorf("%d units, %v; want %d", n, err, want)
	}
}

// TestEntra: with a credential, the throughput is changed through Azure Resource
// Manager: the data plane refuses that (403, sub-status 5300).
func TestEntra(t *testing.T) {
	m := &manager{setting: map[string]string{
		containerPath: `{"throughput": 1050, "minimumThroughput": "400"}`,
		databasePath:  `{"autoscaleSettings": {"maxThroughput": 4000}, "minimumThroughput": "1000"}`,
	}}
	cfg := m.config(t)
	container := managed(t, cfg)
	instances(t, container, 2)
	if err := container.Scale(t.Context(), 7); err != nil {
		t.Error(err)
	}
	instances(t, container, 7)

	cfg.Endpoint, cfg.Account, cfg.Container = "", "contoso", ""
	database := managed(t, cfg)
	instances(t, database, 4)
	if err := database.Scale(t.Context(), 5); err != nil {
		t.Error(err)
	}
	if got := m.setting[databasePath]; got != `{"autoscaleSettings":{"maxThroughput":5000}}` {
		t.Errorf("the database has %s", got)
	}
}

// TestEntraFailures: refusals are one line, and mistakes are found at the start.
func TestEntraFailures(t *testing.T) {
	m := &manager{setting: map[string]string{containerPath: `{"throughput": 4000, "minimumThroughput": "400"}`}}
	cfg := m.config(t)
	target := managed(t, cfg)
	expect := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	m.refuse = "AuthorizationFailed"
	expect("no right", "throughput of container db/docs: HTTP 403 (Forbidden, AuthorizationFailed)", target.Scale(t.Context(), 5))
	other := cfg
	other.Container = "none"
	_, err := managed(t, other).Instances(t.Context())
	expect("no throughput", "HTTP 404", err)

	for want, change := range map[string]func(*cosmos.Config){
		"a credential changes the throughput only through Azure Resource Manager": func(c *cosmos.Config) { c.Subscription = "" },
		"the account's name":                func(c *cosmos.Config) { c.Endpoint = "" },
		"with either a key or a credential": func(c *cosmos.Config) { c.Key = "c2VjcmV0" },
	} {
		wrong := cfg
		change(&wrong)
		_, err := cosmos.New(&wrong)
		expect("configuration", want, err)
	}
}

// TestPending: a change that takes long counts as done once Azure has accepted it, and
// is not requested again.
func TestPending(t *testing.T) {
	m := &manager{pending: true, setting: map[string]string{containerPath: `{"throughput": 4000, "minimumThroughput": "400"}`}}
	target := managed(t, m.config(t))
	if err := target.Scale(t.Context(), 90); err != nil {
		t.Fatal(err)
	}
	instances(t, target, 90)
	m.mu.Lock()
	m.setting[containerPath] = `{"throughput": 90000}`
	m.mu.Unlock()
	instances(t, target, 90)
	m.mu.Lock()
	m.setting[containerPath] = `{"throughput": 50000, "offerReplacePending": "true"}` // by somebody else
	m.mu.Unlock()
	instances(t, target, 50)
}
