//go:build kafka

package kafka

import (
	"os"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/storetest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

func init() {
	kinds["Kafka"] = func(t testing.TB, configs ...string) *cluster {
		return newCluster(t, kafkatest.Shared(t).Brokers(), kafkatest.Topic(t, 2, configs...))
	}
}

func TestOneBroker(t *testing.T) {
	storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness { return harness(kinds["Kafka"](t)) })
}
