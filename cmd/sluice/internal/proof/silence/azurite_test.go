//go:build linux

package silence

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/sluicetest"
)

// The connections to a storage account fall silent; new ones work.
func TestBlobs(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	server, err := azurite.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	address := strings.TrimPrefix(server.URL(), "http://")
	address, _, _ = strings.Cut(address, "/")
	link := tcplink.NewTest(t, address)
	store, err := blobstore.Open(t.Context(), "sluice", &blobstore.Config{ConnectionString: strings.Replace(server.ConnectionString(), address, link.Addr(), 1)})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := sluice.Workers(10, func(context.Context, *sluice.Event) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	delivery := sluice.AtLeastOnce(store, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{CheckpointEvery: 100 * time.Millisecond})
	measure(t, newWatch(t), filling(t), new(sluicetest.Leases), delivery, func() { link.SwallowNewest(100) })
}
