package check

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/kafkatest"
)

// Brokers of Apache Kafka: before the first start, with a topic that is missing, and at a wrong
// address.
func TestConnectKafkaBroker(t *testing.T) {
	topic := kafkatest.Topic(t, 3)
	variables := map[string]string{"BROKERS": strings.Join(kafkatest.Shared(t).Brokers(), ","), "TOPIC": topic, "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db")}
	list := examined(t, patient, fromKafka, variables)
	want(t, list, "source", OK, "topic "+topic+" answers: it has 3 partitions")
	want(t, list, "rights", OK, "may describe the topic; read the topic")
	if list.Worst() != OK {
		t.Errorf("findings %+v", list)
	}
	if err := openFile(t, fromKafka, variables).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, examined(t, patient, fromKafka, variables), "lag", OK, "0")
	variables["TOPIC"] = "flihgts"
	want(t, examined(t, patient, fromKafka, variables), "source", Failed, "p.yaml:1:", "topic flihgts: no such topic")
	variables["BROKERS"] = absent
	want(t, examined(t, patient, fromKafka, variables), "source", Failed, "p.yaml:1:", absent)
}

// A broker that asks for a password.
func TestConnectKafkaPassword(t *testing.T) {
	secured := kafkatest.New(t, &kafkatest.Config{Secure: true})
	if err := secured.CreateTopic(t.Context(), "flights", 2); err != nil {
		t.Fatal(err)
	}
	with := func(password string) List {
		t.Helper()
		return examined(t, patient, withPassword, map[string]string{
			"BROKERS": strings.Join(secured.Secured(kafkatest.SASL), ","), "NAME": kafkatest.User, "KEY": password, "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db"),
		})
	}
	want(t, with(secured.Password()), "source", OK, "2 partitions")
	want(t, with(secret), "source", Failed, "p.yaml:1:", "authentication refused: check the user and the password")
}
