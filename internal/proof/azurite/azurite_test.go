package azurite_test

import (
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/azurite"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

func TestMain(m *testing.M) {
	testserver.Orphan(func() (string, error) {
		s, err := azurite.Start(nil)
		if err != nil {
			return "", err
		}
		return s.URL(), nil
	})
	os.Exit(m.Run())
}

func host(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		t.Fatalf("%q is no URL: %v", text, err)
	}
	return u.Host
}

func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func TestContainersAreApart(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	connection, a := azurite.Container(t)
	_, b := azurite.Container(t)
	if a == b || !strings.Contains(connection, "BlobEndpoint=http://127.0.0.1:") {
		t.Errorf("containers %s and %s on %s", a, b, connection)
	}
}

func TestClose(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	s, err := azurite.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	address := host(t, s.URL())
	if !listens(address) {
		t.Error("does not listen")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if listens(address) {
		t.Error("listens after Close")
	}
}

// A server does not outlive a process that is killed.
func TestOrphan(t *testing.T) {
	need.Azurite(t)
	need.RealTime(t)
	var address string
	testserver.Killed(t, func(said string) {
		if address = host(t, said); !listens(address) {
			t.Fatal("does not listen")
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); listens(address); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the server has outlived the process that started it")
		}
	}
}
