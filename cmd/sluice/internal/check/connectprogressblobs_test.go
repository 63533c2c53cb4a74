package check

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/sluice-go/sluice/internal/proof/azurite"
)

// TestConnectProgressBlobs: the container of progress_blobs is examined as the others are, and is
// not made.
func TestConnectProgressBlobs(t *testing.T) {
	t.Parallel()
	storage := azurite.New(t, nil).ConnectionString()
	client, err := container.NewClientFromConnectionString(storage, "checkpoints", nil)
	if err != nil {
		t.Fatal(err)
	}
	with := func(where string) string {
		return strings.Replace(file, "hub: flights", "hub: flights, progress_blobs: {"+where+"}", 1)
	}
	variables := map[string]string{"HUB": flightsHub(t), "DB": "sqlite:" + filepath.Join(t.TempDir(), "flights.db"), "STORAGE": storage}
	all := with(`container: checkpoints, connection: "${STORAGE}"`)

	list := examined(t, patient, all, variables)
	want(t, list, "published progress", OK, "it answers")
	want(t, list, "rights", OK, "checkpoints (progress_blobs): may list blobs")
	if _, err := client.GetProperties(t.Context(), nil); err == nil {
		t.Error("the container was made")
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want(t, examined(t, patient, all, variables), "rights", OK, "checkpoints (progress_blobs): may list blobs; read blobs; write blobs")

	signed := func(permissions sas.ContainerPermissions) {
		url, err := client.GetSASURL(permissions, time.Now().Add(time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		variables["SIGNED"] = url
	}
	bySignature := with(`container: "${SIGNED}"`)
	signed(sas.ContainerPermissions{Read: true, List: true})
	want(t, examined(t, patient, bySignature, variables), "rights", Failed, "checkpoints (progress_blobs): may not write blobs", "Storage Blob Data Contributor")
	signed(sas.ContainerPermissions{Read: true, List: true, Create: true, Add: true, Write: true}) // it deletes nothing
	want(t, examined(t, patient, bySignature, variables), "rights", OK, "checkpoints (progress_blobs): may list blobs; read blobs; write blobs")
}
