//go:build unix

package kafkatest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's broker.
var shared = testserver.NewShared(need.Kafka, func() (*Cluster, error) { return Start(nil) })

// Shared is the shared broker. Tests must not kill it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	return shared.Get(t)
}

// New starts a cluster for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Cluster {
	t.Helper()
	need.Kafka(t)
	return testserver.New(t, func() (*Cluster, error) { return Start(cfg) })
}

var topics atomic.Int64

// Topic makes a topic for one test on the shared broker, and returns its name. configs are topic
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
