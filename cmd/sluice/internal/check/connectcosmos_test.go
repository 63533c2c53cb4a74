package check

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

const toCosmos = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {sql: "${DB}"}
target: {cosmos: {endpoint: "${ENDPOINT}", key: "${KEY}", database: db, container: docs, id: body.id, partition_key: body.key}}
`

func TestConnectCosmos(t *testing.T) {
	account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { account.Close() })
	variables := map[string]string{
		"HUB": flightsHub(t), "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db"), "ENDPOINT": account.Endpoint(), "KEY": account.Key(),
	}
	list := examined(t, patient, toCosmos, variables)
	want(t, list, "target", OK)
	want(t, list, "rights", OK, "read documents; replace documents; delete documents")
	if list.Worst() != OK {
		t.Errorf("findings %+v", list)
	}
	if stats, err := account.ContainerStats("db", "docs"); err != nil || stats.Documents != 0 {
		t.Errorf("%d documents, %v", stats.Documents, err)
	}
	for _, c := range []struct {
		name, text      string
		variable, value string
		target          []string
		rights          []string // nil: the line of the target is enough
	}{
		{"another container", strings.Replace(toCosmos, "container: docs", "container: dosc", 1), "", "", []string{"p.yaml:4:", "dosc", "check the names of the database and the container"}, []string{"may not read the container's definition"}},
		{"wrong key", toCosmos, "KEY", "bm90IHRoaXMgb25lbm90IHRoaXMgb25l", []string{"p.yaml:4:", "401 Unauthorized", "check the key and this machine's clock"}, []string{"use a key that may write"}},
		{"wrong host", toCosmos, "ENDPOINT", "http://" + absent + "/", []string{"p.yaml:4:", absent, "connection refused"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := maps.Clone(variables)
			changed[c.variable] = c.value
			list := examined(t, patient, c.text, changed)
			want(t, list, "target", Failed, c.target...)
			if c.rights != nil {
				want(t, list, "rights", Failed, c.rights...)
			} else if n := list.Count(Failed); n != 1 {
				t.Errorf("%d failed checks: %+v", n, list)
			}
		})
	}
}
