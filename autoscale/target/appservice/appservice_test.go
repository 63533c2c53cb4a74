package appservice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/sluice-go/sluice/autoscale/target/appservice"
)

// azure is a stand-in for the resource manager with one plan: it serves the two calls as the REST
// API documents them, with a change that is done at once or, after 202 and a Location, later. The
// client is the real one, over HTTPS.
type azure struct {
	*testing.T
	mu      sync.Mutex
	plan    map[string]any
	polls   int // that a change takes
	left    int // of those
	changed int
	refuse  bool
	empty   bool // changes are answered with an empty object
	most    int
}

const (
	path    = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.Web/serverfarms/workers"
	results = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.Web/locations/westeurope/operationresults/1"
)

func (a *azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") == "":
		refuse(w, http.StatusUnauthorized, "AuthenticationFailed")
		return
	case r.URL.Query().Get("api-version") != "2024-11-01":
		refuse(w, http.StatusBadRequest, "InvalidApiVersionParameter")
		return
	case r.URL.Path == results && r.Method == http.MethodGet:
		if a.left > 0 {
			a.left--
			a.later(w, r)
			return
		}
	case r.URL.Path != path:
		refuse(w, http.StatusNotFound, "ResourceNotFound")
		return
	case r.Method == http.MethodPut:
		if a.refuse {
			refuse(w, http.StatusConflict, "Conflict")
			return
		}
		plan := decode(a.T, r.Body)
		a.changed++
		a.plan = plan
		if n, err := plan["sku"].(map[string]any)["capacity"].(json.Number).Int64(); err != nil {
			a.Error(err)
		} else if a.most > 0 && int(n) > a.most {
			a.setCapacity(a.most)
		}
		if a.empty {
			_, _ = w.Write([]byte("{}"))
			return
		}
		if a.left = a.polls; a.left > 0 {
			a.left--
			a.later(w, r)
			return
		}
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
		return
	}
	_ = json.NewEncoder(w).Encode(a.plan)
}

func (a *azure) later(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Location", "https://"+r.Host+results+"?api-version=2024-11-01")
	w.WriteHeader(http.StatusAccepted)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error": {"code": %q, "message": "because"}}`, code)
}

func decode(t *testing.T, from io.Reader) (plan map[string]any) {
	d := json.NewDecoder(from)
	d.UseNumber() // as they are written
	if err := d.Decode(&plan); err != nil {
		t.Error(err)
	}
	return plan
}

func (a *azure) setCapacity(n int) {
	a.plan["sku"].(map[string]any)["capacity"] = json.Number(strconv.Itoa(n))
}

func (a *azure) target(t *testing.T, plan string) *appservice.Target {
	t.Helper()
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	manager := cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: server.URL, Audience: "manager"}}}
	target, err := appservice.New(&appservice.Config{
		Subscription: "00000000-0000-0000-0000-000000000000", ResourceGroup: "shop", Plan: plan, Credential: &azfake.TokenCredential{}, Poll: time.Second,
		Options: &arm.ClientOptions{ClientOptions: azcore.ClientOptions{Cloud: manager, Transport: server.Client(), Retry: policy.RetryOptions{MaxRetries: -1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// planned is a plan with properties that no model here knows, and a number that a float64 can't
// hold.
const planned = `{"id": "` + path + `", "name": "workers", "type": "Microsoft.Web/serverfarms", "location": "West Europe", "kind": "app", "tags": {"team": "billing & more"},
	"sku": {"name": "P1v3", "tier": "PremiumV3", "size": "P1v3", "family": "Pv3", "capacity": %d, "ofTomorrow": {"x": [1, null]}},
	"properties": {"reserved": true, "zoneRedundant": false, "maximumElasticWorkerCount": 20, "ofTomorrow": 9007199254740993}, "identity": {"type": "SystemAssigned"}}`

func newAzure(t *testing.T) *azure {
	return &azure{T: t, plan: decode(t, strings.NewReader(fmt.Sprintf(planned, 2)))}
}

func TestScale(t *testing.T) {
	a := newAzure(t)
	target := a.target(t, "workers")
	for _, want := range []int{3, 5, 1} {
		if err := target.Scale(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if n, err := target.Instances(t.Context()); err != nil || n != want {
			t.Errorf("%d instances, %v; want %d", n, err, want)
		}
	}
	if want := decode(t, strings.NewReader(fmt.Sprintf(planned, 1))); a.changed != 3 || !reflect.DeepEqual(a.plan, want) {
		t.Errorf("after %d changes the plan is %v, want %v", a.changed, a.plan, want)
	}
}

func TestScaleWaits(t *testing.T) {
	a := newAzure(t)
	a.polls = 1
	target := a.target(t, "workers")
	if err := target.Scale(t.Context(), 4); err != nil {
		t.Error(err)
	}
	if n, err := target.Instances(t.Context()); err != nil || n != 4 || a.left != 0 {
		t.Errorf("%v, capacity %d, %d polls left", err, n, a.left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	a.polls = 1000
	if err := a.target(t, "workers").Scale(ctx, 5); err == nil {
		t.Error("a change that goes on is taken for done")
	}
}

func TestFailures(t *testing.T) {
	a := newAzure(t)
	expect := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	_, err := a.target(t, "none").Instances(t.Context())
	expect("no such plan", "app service plan shop/none: HTTP 404 (Not Found, ResourceNotFound)", err)
	a.most = 3
	expect("more than there can be", "10 instances requested, but the plan has 3", a.target(t, "workers").Scale(t.Context(), 10))
	a.empty = true
	expect("an answer without the capacity", "9 instances requested, but the plan has 3", a.target(t, "workers").Scale(t.Context(), 9))
	a.empty, a.refuse = false, true
	expect("refused", "HTTP 409 (Conflict)", a.target(t, "workers").Scale(t.Context(), 1))
	delete(a.plan["sku"].(map[string]any), "capacity")
	expect("no capacity", "no capacity", a.target(t, "workers").Scale(t.Context(), 1))
	if _, err := appservice.New(&appservice.Config{Plan: "workers"}); err == nil {
		t.Error("a plan without a subscription is taken")
	}
}
