//go:build unix

package kafkatest

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's broker.
var shared = testserver.Shared[*Cluster]{Package: "kafkatest"}

// Run is a package's TestMain: it provides the broker that the package's tests share, runs them, and
// returns the exit code. More parallel tests run at once than there are CPUs, because they wait for
// brokers more than they compute; the flag -parallel says otherwise.
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
func Run(m *testing.M) int {
	_ = flag.Set("test.parallel", "12")
	return Around(m.Run)
}

// Around is [Run] for tests that need more than one kind of server: run is the run of the tests, or
// the Around of another server.
func Around(run func() int) int {
	return shared.Around(run, func() (*Cluster, error) { return Start(nil) })
}

// Shared is the broker of [Run]. Tests must not kill it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	return shared.Of(t)
}

// New starts a cluster for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Cluster {
	t.Helper()
	return testserver.New(t, func() (*Cluster, error) { return Start(cfg) })
}

var topics atomic.Int64

// Topic makes a topic for one test on the broker of [Run], and returns its name. configs are topic
// configurations, such as "cleanup.policy=compact".
func Topic(t testing.TB, partitions int, configs ...string) string {
	t.Helper()
	c := Shared(t)
	name := c.Topic(t, partitions, configs...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.DeleteTopic(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// Topic makes a topic for one test, and returns its name. It is replicated to all brokers, at most
// to three.
func (c *Cluster) Topic(t testing.TB, partitions int, configs ...string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", topics.Add(1))
	if err := c.CreateTopic(t.Context(), name, partitions, configs...); err != nil {
		t.Fatal(err)
	}
	return name
}
