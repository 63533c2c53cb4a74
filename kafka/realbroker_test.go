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

func TestConformanceOfKafka(t *testing.T) {
	t.Run("one broker", func(t *testing.T) {
		storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness { return harness(kinds["Kafka"](t)) })
	})
	t.Run("three brokers", func(t *testing.T) {
		three := kafkatest.New(t, &kafkatest.Config{Brokers: 3})
		storetest.TestSource(t, func(t testing.TB) storetest.SourceHarness {
			return harness(newCluster(t, three.Brokers(), three.Topic(t, 2)))
		})
	})
}
