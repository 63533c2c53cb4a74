package emulator_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/emulator"
)

// The official client writes in whichever region takes the writes, after a fail-over on
// demand, too.
func TestCosmosRegions(t *testing.T) {
	t.Parallel()
	as, err := emulator.ParseAsAzure("all,cosmos-two-regions", 1)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, &emulator.CosmosConfig{AsAzure: as, Control: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	regions := func() (list []emulator.CosmosRegion) {
		t.Helper()
		res, err := http.Get("http://" + srv.ControlAddr() + "/regions")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&list); err != nil || !reflect.DeepEqual(list, srv.Regions()) {
			t.Fatalf("%+v, %v", list, err)
		}
		return list
	}
	if list := regions(); len(list) != 2 || !list[0].Writes || list[1].Writes || list[0].Endpoint != srv.Endpoint() || list[1].Endpoint == srv.Endpoint() {
		t.Errorf("%+v", list)
	}
	res, err := http.Post("http://"+srv.ControlAddr()+"/failover", "application/json", strings.NewReader("{}"))
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", res, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if list := regions(); list[0].Writes || !list[1].Writes {
		t.Errorf("%+v", list)
	}
	client, err := azcosmos.NewClientFromConnectionString(srv.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewContainer("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateItem(t.Context(), azcosmos.NewPartitionKeyString("a"), []byte(`{"id":"1","key":"a"}`), nil); err != nil {
		t.Error(err)
	}
	one, err := emulator.StartCosmos(nil, &emulator.CosmosConfig{AsAzure: emulator.AllAsAzure(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := one.Failover(); err == nil || len(one.Regions()) != 1 {
		t.Errorf("one region: %+v, %v", one.Regions(), err)
	}
}
