package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const ordersSink = `{"name": "orders-sink", "config": {
	"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "shop.orders,shop.payments",
	"connection.url": "jdbc:sqlite:orders.db", "insert.mode": "upsert", "delete.enabled": "true", "pk.mode": "record_key", "pk.fields": "id",
	"auto.create": "true", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
	"value.converter": "org.apache.kafka.connect.json.JsonConverter", "transforms": "route,rename,mask",
	"transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter", "transforms.route.regex": "shop\\.(.*)", "transforms.route.replacement": "$1",
	"transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value", "transforms.rename.renames": "sum:amount",
	"transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value", "transforms.mask.fields": "card", "transforms.mask.replacement": "****",
	"consumer.override.bootstrap.servers": "%s", "made.up.key": "1"}}`

// TestInitFromConnector translates a sink of Kafka Connect and runs the file as it is: the rows are
// those that the sink would have.
func TestInitFromConnector(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t, kfake.SeedTopics(2, "shop.orders"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sink.json"), fmt.Appendf(nil, ordersSink, strings.Join(cluster.ListenAddrs(), ",")), 0o644); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const schema = `{"schema":{"type":"struct","fields":[{"field":"sum","type":"int64"},{"field":"card","type":"string"},{"field":"at","type":"int64","name":"org.apache.kafka.connect.data.Timestamp"}]},"payload":`
	send := func(key, payload string) {
		r := &kgo.Record{Topic: "shop.orders", Key: []byte(key)}
		if payload != "" {
			r.Value = []byte(schema + payload + "}")
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		send(fmt.Sprintf("o%d", i), fmt.Sprintf(`{"sum":%d,"card":"4111","at":1783544645678}`, i))
	}
	send("o1", `{"sum":100,"card":"4111","at":1783544645678}`)
	must(t, dir, nil, "init", "all.yaml", "--from-connector", "sink.json")
	if code, out, errs := invoke(t, dir, nil, "check", "all.yaml"); code == 0 || !strings.Contains(out, "the environment variable TODO is not set") {
		t.Errorf("a file with something to do passes: %d %s%s", code, out, errs)
	}
	out := must(t, dir, nil, "init", "orders.yaml", "--from-connector", "sink.json", "--from-topic", "shop.orders", "--from", to)
	for _, part := range []string{
		"made.up.key  not translated: this key is not known", "of 13 events none becomes a dead letter",
		"sluice move --from-group connect-orders-sink --config orders.yaml --apply",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	if strings.Contains(out, "To do first") {
		t.Fatalf("something is left to do:\n%s", out)
	}
	send("o2", "")
	must(t, dir, nil, "check", "orders.yaml", "--connect")
	must(t, dir, nil, "run", "orders.yaml", "--until-caught-up", "--within", "2m")
	db := openDatabase(t, "sqlite:"+filepath.Join(dir, "orders.db"))
	if n := count(t, db, "SELECT count(*) FROM orders WHERE card = '****' AND at LIKE '2026-07-08%' AND (id <> 'o1' OR amount = 100) AND id <> 'o2'"); n != 11 {
		t.Errorf("%d rows are right, want 11", n)
	}
	if n := count(t, db, "SELECT count(*) FROM orders"); n != 11 {
		t.Errorf("%d rows, want 11", n)
	}
}

func TestInitFromConnectorMisused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"sink.json": fmt.Sprintf(ordersSink, "a:1"), "none.json": `[]`, "other.json": `{"connector.class":"PostgresSink"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"--from-connector none.json":                               "none.json: it is no JSON object",
		"--from-connector other.json":                              `connector.class "PostgresSink" is none of`,
		"--from-connector nowhere.json":                            "nowhere.json",
		"--from-connector sink.json --target http":                 "--target does not go with --from-connector",
		"--from-connector sink.json --from-topic other":            "it does not read the topic other",
		"--from-connector sink.json --sample sink.json":            "the connector reads 2: pass --from-topic NAME",
		"--from-connector sink.json --from kafka://a:1":            "--from goes with --from-topic",
		"--from-connector sink.json --sample sink.json --encoding": "encoding",
	} {
		code, _, errs := invoke(t, dir, nil, append([]string{"init", "p.yaml"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, want %q in %s", args, code, want, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "p.yaml")); err == nil {
		t.Error("a file was written")
	}
}
