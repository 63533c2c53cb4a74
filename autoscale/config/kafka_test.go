//go:build kafka

package config_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
)

func init() { servers = append(servers, kafkatest.Around) }

func TestKafkaGroupOfABroker(t *testing.T) {
	groupLag(t, kafkatest.Shared(t).Brokers(), kafkatest.Topic(t, 2))
}
