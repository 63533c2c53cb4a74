package sqldatabase_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/sql/armsql"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/sql/armsql/fake"

	"github.com/sluice-go/sluice/autoscale/internal/armtest"
	"github.com/sluice-go/sluice/autoscale/target/sqldatabase"
)

// azure is the SDK's fake with one database.
type azure struct {
	*testing.T
	current    string
	requested  string // empty: as current
	polls      int    // that a change takes
	conflicts  int    // that are answered before a change is accepted
	fails      string // the code with which changes end
	ignores    bool   // changes have no effect
	changes    int
	onConflict func() // a conflict
}

func (a *azure) Get(_ context.Context, group, server, database string, _ *armsql.DatabasesClientGetOptions) (r azfake.Responder[armsql.DatabasesClientGetResponse], e azfake.ErrorResponder) {
	if group != "shop" || server != "contoso" || database != "orders" {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return r, e
	}
	d := armsql.Database{Properties: &armsql.DatabaseProperties{CurrentServiceObjectiveName: &a.current, RequestedServiceObjectiveName: &a.current}}
	if a.requested != "" {
		d.Properties.RequestedServiceObjectiveName = &a.requested
	}
	r.SetResponse(http.StatusOK, armsql.DatabasesClientGetResponse{Database: d}, nil)
	return r, e
}

func (a *azure) BeginUpdate(_ context.Context, _, _, _ string, u armsql.DatabaseUpdate, _ *armsql.DatabasesClientBeginUpdateOptions) (r azfake.PollerResponder[armsql.DatabasesClientUpdateResponse], e azfake.ErrorResponder) {
	if a.conflicts > 0 {
		a.conflicts--
		if a.onConflict != nil {
			a.onConflict()
		}
		e.SetResponseError(http.StatusConflict, "ConflictingDatabaseOperation")
		return r, e
	}
	if u.SKU == nil || u.SKU.Name == nil || u.Properties != nil || u.Tags != nil || u.SKU.Capacity != nil {
		a.Errorf("the change is %+v, want the name of the sku alone", u)
	}
	a.changes++
	for range a.polls {
		r.AddNonTerminalResponse(http.StatusAccepted, nil)
	}
	if a.fails != "" {
		r.SetTerminalError(http.StatusBadRequest, a.fails)
		return r, e
	}
	if !a.ignores {
		a.current = *u.SKU.Name
	}
	r.SetTerminalResponse(http.StatusOK, armsql.DatabasesClientUpdateResponse{Database: armsql.Database{SKU: u.SKU, Location: to.Ptr("westeurope")}}, nil)
	return r, e
}

func (a *azure) config() *sqldatabase.Config {
	server := &fake.DatabasesServer{Get: a.Get, BeginUpdate: a.BeginUpdate}
	return &sqldatabase.Config{
		Subscription: "00000000-0000-0000-0000-000000000000", ResourceGroup: "shop", Server: "contoso", Database: "orders",
		Objectives: []string{"S0", "S1", "GP_Gen5_2"}, Credential: &azfake.TokenCredential{}, Options: armtest.Options("DatabasesClient", fake.NewDatabasesServerTransport(server)),
	}
}

func (a *azure) target() *sqldatabase.Target {
	a.Helper()
	t, err := sqldatabase.New(a.config())
	if err != nil {
		a.Fatal(err)
	}
	return t
}

func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, current: "s0"} // Azure compares names without regard to case
		target := a.target()
		armtest.Instances(t, target, 1)
		for n, want := range []string{"S0", "S1", "GP_Gen5_2", "S1"} {
			a.polls = n
			place := map[string]int{"S0": 1, "S1": 2, "GP_Gen5_2": 3}[want]
			if err := target.Scale(t.Context(), place); err != nil || a.current != want {
				t.Errorf("to %d: %v, the database has %s, want %s", place, err, a.current, want)
			}
			armtest.Instances(t, target, place)
		}
		if a.changes != 4 {
			t.Errorf("%d changes, want 4", a.changes)
		}
	})
}

// TestInProgress: while a change is in progress, the database counts as what it will be, and a
// change that takes too long is an error.
func TestInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, current: "S0", requested: "S1"}
		target := a.target()
		armtest.Instances(t, target, 2)
		a.requested, a.polls = "", 1000
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		armtest.Fails(t, "a change that goes on", "deadline exceeded", target.Scale(ctx, 3))
	})
}

func TestConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, current: "S0", conflicts: 3}
		target := a.target()
		began := time.Now()
		if err := target.Scale(t.Context(), 2); err != nil || a.current != "S1" || time.Since(began) != 15*time.Second {
			t.Errorf("%v after %v, the database has %s", err, time.Since(began), a.current)
		}
		a.conflicts = 1000
		armtest.Fails(t, "conflicts for ever", "azure sql database contoso/orders: HTTP 409 (Conflict, ConflictingDatabaseOperation)", target.Scale(t.Context(), 3))
		if tried := 1000 - a.conflicts; tried != 24 {
			t.Errorf("tried %d times, want 24", tried)
		}
	})
}

// TestOffTheList: an objective that is not in the list is named, and never changed, also if it
// is set while Scale waits for another change.
func TestOffTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, current: "P1"}
		target := a.target()
		const want = `the database has the service objective "P1", which is not in the list S0, S1, GP_Gen5_2: something else has set it`
		_, err := target.Instances(t.Context())
		armtest.Fails(t, "instances", want, err)
		armtest.Fails(t, "scale", want, target.Scale(t.Context(), 2))
		a.current, a.conflicts, a.onConflict = "S0", 1, func() { a.current = "P1" }
		armtest.Fails(t, "while it waits", want, target.Scale(t.Context(), 2))
		a.current = "ElasticPool"
		_, err = target.Instances(t.Context())
		armtest.Fails(t, "in a pool", "in an elastic pool", err)
		if a.current = ""; a.changes != 0 {
			t.Errorf("%d changes", a.changes)
		}
		_, err = target.Instances(t.Context())
		armtest.Fails(t, "none", "names no service objective", err)
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &azure{T: t, current: "S0", fails: "SkuNotAvailable", polls: 2}
		target := a.target()
		armtest.Fails(t, "the change fails", "HTTP 400 (Bad Request, SkuNotAvailable)", target.Scale(t.Context(), 2))
		a.fails, a.ignores = "", true
		target = a.target() // the SDK's fake keeps a change that has failed
		armtest.Fails(t, "no effect", "S1 requested, but the database has S0", target.Scale(t.Context(), 2))
		for _, n := range []int{-1, 0, 4} {
			armtest.Fails(t, "beyond the list", "the list of service objectives has 3: set min and max to 1 and 3 at most", target.Scale(t.Context(), n))
		}
		c := a.config()
		c.Database = "none"
		none, err := sqldatabase.New(c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = none.Instances(t.Context())
		armtest.Fails(t, "no such database", "azure sql database contoso/none: HTTP 404 (Not Found, ResourceNotFound)", err)
		for want, list := range map[string][]string{
			"2 to 100, the smallest first":      {"S0"},
			"s0 is in the list of service":      {"S0", "S1", "s0"},
			`"S0; DROP" is not a service`:       {"S0; DROP", "S1"},
			"a database in an elastic pool has": {"S0", "elasticpool"},
		} {
			c := a.config()
			c.Objectives = list
			_, err := sqldatabase.New(c)
			armtest.Fails(t, strings.Join(list, " "), want, err)
		}
		_, err = sqldatabase.New(&sqldatabase.Config{Objectives: []string{"S0", "S1"}})
		armtest.Fails(t, "nothing", "give a subscription's id", err)
	})
}
