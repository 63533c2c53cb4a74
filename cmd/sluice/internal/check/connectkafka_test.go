package check

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fromKafka = `source: {kafka: {brokers: "${BROKERS}", topic: "${TOPIC:-flights}", group: g}}
partitions: all
database: ${DB}
target: {insert: {table: flights, create: true, columns: {n: sequence}}}
`
	withPassword = `source: {kafka: {brokers: "${BROKERS}", topic: flights, group: g, sasl: {plain: {user: "${NAME}", password: "${KEY}"}}}}
partitions: all
database: ${DB}
target: {insert: {table: flights, create: true, columns: {n: sequence}}}
`
)

// A broker that asks for a password, and knows a user with few rights.
func TestConnectKafkaRights(t *testing.T) {
	may := func(operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "flights", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "flights"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "reader", secret, may(kmsg.ACLOperationDescribe), may(kmsg.ACLOperationRead)),
		kfake.User("PLAIN", "viewer", secret, may(kmsg.ACLOperationDescribe)),
		kfake.User("PLAIN", "other", secret))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	for _, c := range []struct {
		name, password, check string
		state                 State
		parts                 []string
	}{
		{"reader", secret, "source", OK, []string{"topic flights answers: it has 3 partitions"}},
		{"reader", secret, "rights", OK, []string{"may describe the topic; read the topic"}},
		{"viewer", secret, "rights", Failed, []string{"may not read the topic", "grant the operation Read on the topic"}},
		{"other", secret, "source", Failed, []string{"p.yaml:1:", "not authorised"}},
	} {
		variables := map[string]string{"BROKERS": strings.Join(cluster.ListenAddrs(), ","), "NAME": c.name, "KEY": c.password, "DB": "sqlite:" + filepath.Join(t.TempDir(), "f.db")}
		want(t, examined(t, patient, withPassword, variables), c.check, c.state, c.parts...)
	}
}
