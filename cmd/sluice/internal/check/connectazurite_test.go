package check

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/sluice-go/sluice/internal/proof/azurite"
)

const leasesInBlobs = `source: {eventhub: {connection: "${HUB}", hub: flights}}
partitions: all
leases: {blob: {container: sluice, connection: "${STORAGE}"}}
target: {http: {url: "${URL}"}}
`

// Leases in a container beside a database: one that does not exist is said to be missing, and is
// not made.
func TestConnectAzuriteLeasesBesideDatabase(t *testing.T) {
	server := azurite.New(t, nil)
	beside := func(container string) string {
		return file + `leases: {blob: {container: ` + container + `, connection: "${STORAGE}"}}
`
	}
	variables := map[string]string{"HUB": flightsHub(t), "STORAGE": server.ConnectionString(), "DB": "sqlite://" + filepath.Join(t.TempDir(), "flights.db")}
	if err := openFile(t, beside("sluice"), variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, examined(t, patient, beside("typo"), variables), "owners", Warning, "p.yaml:5:", "the container of the leases does not exist")
	}
	want(t, examined(t, patient, beside("sluice"), variables), "owners", OK, "no partition has an owner")
}

// Leases in blobs of Azurite: before the first start, with an owner, and with what refuses them.
func TestConnectAzurite(t *testing.T) {
	server := azurite.New(t, nil)
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(endpoint.Close)
	variables := map[string]string{"HUB": flightsHub(t), "STORAGE": server.ConnectionString(), "KEY": azurite.Key, "URL": endpoint.URL}
	with := func(storage string) List {
		t.Helper()
		changed := map[string]string{"HUB": variables["HUB"], "STORAGE": storage, "KEY": azurite.Key, "URL": endpoint.URL}
		return examined(t, patient, leasesInBlobs, changed)
	}
	want(t, with(server.ConnectionString()), "tables", OK, "the first start creates it")

	parts := openFile(t, leasesInBlobs, variables)
	t.Cleanup(func() { _ = parts.Close(t.Context()) })
	if _, err := parts.Leases.Acquire(t.Context(), parts.Group, "1", "vm-7", 30*time.Second, 0); err != nil {
		t.Fatal(err)
	}
	list := with(server.ConnectionString())
	want(t, list, "leases", OK)
	want(t, list, "rights", OK, "read blobs; write blobs; delete blobs")
	want(t, list, "owners", OK, "vm-7 owns partition 1")
	want(t, list, "owners", Warning, "without an owner: partition 0")

	wrong := strings.Replace(server.ConnectionString(), azurite.Key, "bm90IHRoaXMgb25lbm90IHRoaXMgb25l", 1)
	want(t, with(wrong), "leases", Failed, "p.yaml:3:", "403", "check the key")
	want(t, with(strings.Replace(server.ConnectionString(), strings.TrimPrefix(server.URL(), "http://"), absent+"/"+azurite.Account, 1)), "leases", Failed, "p.yaml:3:", absent, "connection refused", "check the container's name")

	// The account answers as one that grants the identity no right to write.
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	readOnly := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = at.Scheme, at.Host, r.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodPut {
				resp.StatusCode = http.StatusForbidden
				resp.Header.Set("x-ms-error-code", string(bloberror.AuthorizationPermissionMismatch))
			}
			return nil
		},
	})
	t.Cleanup(readOnly.Close)
	want(t, with(strings.Replace(server.ConnectionString(), at.Host, strings.TrimPrefix(readOnly.URL, "http://"), 1)), "rights", Failed, "may not write blobs", "Storage Blob Data Contributor")
}
