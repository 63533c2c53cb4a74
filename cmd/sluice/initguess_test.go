package main_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestInitFromHub writes a file for the events of a hub, and runs it as it is.
func TestInitFromHub(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 3)
	dir := t.TempDir()
	env := []string{"HUB=" + connection}
	code, _, errs := invoke(t, dir, env, "init", "flights.yaml", "--from", "env:HUB", "--from-hub", "flights")
	if code != 1 || !strings.Contains(errs, "hub flights has no events: send some first") {
		t.Fatalf("of an empty hub: exit code %d: %s", code, errs)
	}
	for n := range 30 {
		var body bytes.Buffer
		w := gzip.NewWriter(&body)
		fmt.Fprintf(w, `{"id":%d,"at":"2026-07-08T21:04:05Z","note":"\u001b[2J # ${X}"}`, n)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		produce(t, connection, fmt.Sprint(n%3), &azeventhubs.EventData{Body: body.Bytes(), ContentType: to.Ptr("application/json")})
	}
	out := must(t, dir, env, "init", "flights.yaml", "--from", "env:HUB", "--from-hub", "flights", "--consumer-group", "sluice-audit")
	for _, part := range []string{"Looked at the newest 30 events of hub flights.", "Compression gzip: all bodies begin as gzip does.", "of 30 events none becomes a dead letter"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "flights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"connection: ${HUB}\n    hub: flights\n    consumer_group: sluice-audit", "format: {compression: gzip}", "at: {from: body.at, type: timestamp, required: false}"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	must(t, dir, env, "check", "flights.yaml", "--connect")
	must(t, dir, env, "run", "flights.yaml", "--until-caught-up", "--within", "2m")
	if n := count(t, openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db")), "SELECT count(*) FROM flights WHERE id >= 0 AND note <> ''"); n != 30 {
		t.Errorf("%d rows", n)
	}
}

// TestInitFromTopic writes a file for the events of a topic of Kafka, and runs it as it is.
func TestInitFromTopic(t *testing.T) {
	t.Parallel()
	k := newTopic(t, 2, fakeKafka(t))
	for n := range 20 {
		for kind, more := range map[string]string{"order": `"total":1,"customer":"x"`, "shipment": `"carrier":"x","weight":2.5`} {
			record := &kgo.Record{Topic: k.name, Partition: int32(n % 2), Value: fmt.Appendf(nil, `{"id":%d,%s}`, n, more), Headers: []kgo.RecordHeader{{Key: "kind", Value: []byte(kind)}}}
			if err := k.client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	out := must(t, dir, nil, "init", "events.yaml", "--from", "kafka://"+k.brokers, "--from-topic", k.name)
	for _, part := range []string{"Table order, where properties.kind is order: 20 events", "Table shipment, where", "of 40 events none becomes a dead letter"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	must(t, dir, nil, "check", "events.yaml", "--connect")
	must(t, dir, nil, "run", "events.yaml", "--until-caught-up", "--within", "2m")
	db := openDatabase(t, "sqlite:"+filepath.Join(dir, "events.db"))
	if orders, shipments := count(t, db, `SELECT count(total) FROM "order"`), count(t, db, "SELECT count(weight) FROM shipment"); orders != 20 || shipments != 20 {
		t.Errorf("%d orders, %d shipments", orders, shipments)
	}
}

// TestInitForATable maps values to the columns of a table that exists.
func TestInitForATable(t *testing.T) {
	eachFastDatabase(t, func(t *testing.T, url string) {
		db := openDatabase(t, url)
		definition := "CREATE TABLE shop_orders (hub_partition VARCHAR(50), sequence_number BIGINT, OrderID INTEGER NOT NULL, customer_name VARCHAR(100), amount DECIMAL(10,2), region VARCHAR(20) NOT NULL)"
		if strings.HasPrefix(url, "sqlserver:") { // there VARCHAR has the characters of a code page only
			definition = strings.ReplaceAll(definition, "VARCHAR", "NVARCHAR")
		}
		if _, err := db.ExecContext(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		sample := filepath.Join(dir, "orders.ndjson")
		if err := os.WriteFile(sample, []byte(`{"order_id":1,"customerName":"Ada","amount":12.5,"more":1}`+"\n"+`{"order_id":2,"customerName":"Bo","amount":7,"more":1}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out := must(t, dir, []string{"TARGET=" + url}, "init", "orders.yaml", "--sample", sample, "--table", "shop_orders", "--database", "env:TARGET")
		for _, part := range []string{"To do: Column region", "has no column for body.more", "of 2 events none becomes a dead letter"} {
			if !strings.Contains(out, part) {
				t.Errorf("no %q in\n%s", part, out)
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "orders.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"database: ${TARGET}", "table: shop_orders\n    columns:", "customer_name: {from: body.customerName, type: text, required: false}", "{from: body.order_id, type: "} {
			if !strings.Contains(string(text), part) {
				t.Errorf("no %q in\n%s", part, text)
			}
		}
		if strings.Contains(string(text), "create:") {
			t.Errorf("%s", text)
		}
	})
}

func TestWrongFlagsOfInit(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--sample a --from-hub b":                             "exclude each other",
		"--from-hub a --from-topic b":                         "exclude each other",
		"--table t":                                           "--table goes with",
		"--from env:X":                                        "--from goes with --from-hub or --from-topic",
		"--sample a --target http":                            "--target http: columns are guessed",
		"--sample a --events 7":                               "--events goes with",
		"--from kafka://a:1 --from-topic t --events 0":        "--events 0: must be",
		"--encoding latin1":                                   "--encoding goes with --sample",
		"--database postgres://a/b":                           "--database: an address goes with",
		"--sample a --database nosql:x":                       "--database: write sqlite:PATH",
		"--from kafka://a:1 --from-hub t":                     "--from-hub is of Event Hubs",
		"--from-topic t --namespace x.servicebus.windows.net": "--from-topic is of Kafka",
		"--from kafka://a:1 --from-topic t --source eventhub": "--source eventhub: the events are from a topic of Kafka",
	} {
		code, _, errs := invoke(t, t.TempDir(), nil, append([]string{"init", "a.yaml"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
}
