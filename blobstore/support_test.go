package blobstore_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

func TestMain(m *testing.M) {
	if os.Getenv(zombie) != "" {
		actZombie()
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // the tests wait for leases to end more than they compute
	os.Exit(m.Run())
}

var group = driver.Group{Namespace: "ns.servicebus.windows.net", Topic: "flights", Name: "$Default"}

// place is a container of the test's own.
type place struct{ connection, name string }

func newPlace(t testing.TB) place {
	t.Helper()
	connection, name := azurite.Container(t)
	return place{connection, name}
}

// open opens a store on it, as another process would.
func (p place) open(t testing.TB) *blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), p.name, &blobstore.Config{ConnectionString: p.connection})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// linked is the place behind a link that can be silent.
func (p place) linked(t testing.TB) (place, *tcplink.Link) {
	t.Helper()
	const endpoint = "BlobEndpoint=http://"
	_, after, found := strings.Cut(p.connection, endpoint)
	if !found {
		t.Fatal("the connection string has no endpoint")
	}
	server, _, _ := strings.Cut(after, "/")
	link := tcplink.NewTest(t, server)
	return place{strings.Replace(p.connection, endpoint+server, endpoint+link.Addr(), 1), p.name}, link
}

// client speaks to the container past the store.
func (p place) client(t testing.TB) *container.Client {
	t.Helper()
	c, err := container.NewClientFromConnectionString(p.connection, p.name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// blob is the name of a partition's blob of group.
const blob = "ns.servicebus.windows.net/flights/$Default/partitions/0"

// expire ends the lease on a blob at once, whoever has it.
func expire(ctx context.Context, c *container.Client, name string) error {
	l, err := lease.NewBlobClient(c.NewBlobClient(name), nil)
	if err != nil {
		return err
	}
	now := int32(0)
	_, err = l.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: &now})
	return err
}

func positionAt(sequence int64) driver.Position { return driver.Position{Sequence: sequence} }

func acquire(t testing.TB, s *blobstore.Store, owner string) driver.Lease {
	t.Helper()
	l, err := s.Leases().Acquire(t.Context(), group, "0", owner, blobstore.MinLease, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func claim(t testing.TB, s *blobstore.Store, l driver.Lease) driver.Checkpoint {
	t.Helper()
	p, err := s.Claim(t.Context(), l, "incarnation 1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// progress reads partition 0's checkpoint.
func progress(t testing.TB, s *blobstore.Store) driver.Checkpoint {
	t.Helper()
	list, err := s.Read(t.Context(), group)
	if err != nil || len(list) != 1 {
		t.Fatalf("read %+v, %v", list, err)
	}
	return list[0]
}
