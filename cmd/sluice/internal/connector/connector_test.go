package connector

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/pipeline"
)

// published are configurations that others have published, reduced to what the connector reads:
// hosts and passwords are others.
var published = map[string]string{
	"confluent-unwrap":     "debezium/debezium-examples unwrap-smt/jdbc-sink.json",
	"confluent-schema":     "debezium/debezium-examples postgres-toast/jdbc-sink.json",
	"confluent-valuetokey": "openmeterio/openmeter internal/streaming/kafka_connector/sql/meter_connector_sink.sql",
	"confluent-regex":      "80330775/cdc kafka-connect/connectors-sink-jdbc.sh",
	"confluent-avro":       "blizrat/BusDispatch setup-kafka-sink-to-postgres.sh",
	"aiven-messages":       "Aiven-Open/jdbc-connector-for-apache-kafka docs/sink-connector.md",
	"aiven-avro":           "aiven/devportal docs/products/kafka/kafka-connect/howto/jdbc-sink.rst",
	"aiven-normalize":      "tibs/fish-and-chips-and-kafka-talk, the sink of its demo 5",
	"aiven-timestamps":     "an example of Aiven for Terraform, its connector kafka-mysql-sink",
	"aiven-secrets":        "aiven/aiven-docs docs/products/kafka/kafka-connect/howto/configure-secret-providers.md",
	"debezium-topics":      "debezium/debezium-examples cqrs/mysql-sink.json",
	"debezium-products":    "debezium/debezium-examples milvus-to-pgvector/sink-postgres.json",
	"debezium-fullname":    "simplydemo/simplydemo-kafka-fullname-transform README.md",
	"debezium-sqlserver":   "ohad-israeli/debezium-jdbc-sqlserver-sink connectors/sink-jdbc-sqlserver.json",
	"debezium-zone":        "Naros/debezium-jdbc-demo register-sink-postgres.json",
}

func translate(t testing.TB, data []byte, fields ...newfile.Column) *Translation {
	t.Helper()
	s, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Translate(&Config{Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPublishedConnectors translates published configurations. The expected files name what could
// not be translated. UPDATE=1 writes them.
func TestPublishedConnectors(t *testing.T) {
	for name := range published {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			out := translate(t, data)
			got := out.Text + "# --- done\n"
			for _, n := range out.Done {
				got += fmt.Sprintf("# %s: %s\n", n.Key, n.Text)
			}
			if strings.Contains(got, "secret") {
				t.Errorf("it has a password:\n%s", got)
			}
			golden := filepath.Join("testdata", name+".yaml")
			complete := filepath.Join(t.TempDir(), "p.yaml")
			if err := os.WriteFile(complete, regexp.MustCompile(`(?m)^memory_limit: .*\n`).ReplaceAll([]byte(got), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := pipeline.LoadOffline(complete); err != nil {
				t.Errorf("check refuses the file once nothing is left to do: %v", err)
			}
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal([]byte(got), want) {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(published) {
		t.Errorf("%d files, %d sources: %v", len(files), len(published), err)
	}
}

// sink is a configuration of a connector with more keys.
func sink(class string, more ...string) []byte {
	config := `{"name":"s","connector.class":"` + class + `","topics":"t","connection.url":"jdbc:sqlite:x.db","value.converter":"org.apache.kafka.connect.json.JsonConverter"`
	for i := 0; i < len(more); i += 2 {
		config += fmt.Sprintf(",%q:%q", more[i], more[i+1])
	}
	return []byte(config + "}")
}

const (
	confluentClass = "io.confluent.connect.jdbc.JdbcSinkConnector"
	debeziumClass  = "io.debezium.connector.jdbc.JdbcSinkConnector"
)

// smt are the keys of a transform.
func smt(class string, options ...string) []string {
	keys := []string{"transforms", "x", "transforms.x.type", class}
	for i := 0; i < len(options); i += 2 {
		keys = append(keys, "transforms.x."+options[i], options[i+1])
	}
	return keys
}

// TestKeys translates keys one at a time. The expected texts are in the file, or in a note after !.
func TestKeys(t *testing.T) {
	const transforms = "org.apache.kafka.connect.transforms."
	whole := []string{"fields.whitelist", "id,v"}
	for name, c := range map[string]struct {
		class string
		keys  []string
		want  []string
	}{
		"whitelist":         {confluentClass, nil, []string{"v: {from: body.v, required: false}"}},
		"pk kafka":          {confluentClass, []string{"pk.mode", "kafka", "insert.mode", "upsert"}, []string{"key: [__connect_topic, __connect_partition, __connect_offset]", "__connect_offset: {from: sequence, type: bigint}", `default: t`}},
		"string key":        {confluentClass, []string{"pk.mode", "record_key", "pk.fields", "id", "insert.mode", "upsert", "delete.enabled", "true", "key.converter", stringConverter}, []string{"id: {from: key, type: text}", "delete_when: tombstone"}},
		"record header":     {debeziumClass, []string{"primary.key.mode", "record_header", "primary.key.fields", "id", "insert.mode", "upsert"}, []string{"id: {from: properties.id, type: text}", "envelope: debezium", "only: {body.__op: {not: [d, t]}}"}},
		"names unquoted":    {debeziumClass, []string{"connection.url", "jdbc:postgresql://h/d", "topics", "A.B", "field.include.list", "V", "fields.whitelist", "", "primary.key.mode", "record_value", "primary.key.fields", "ID", "insert.mode", "upsert"}, []string{"table: a_b", "key: [id]", "id: {from: body.ID}", "v: {from: body.V"}},
		"names quoted":      {confluentClass, []string{"connection.url", "jdbc:postgresql://h/d", "topics", "B"}, []string{"table: B"}},
		"deletes, no key":   {confluentClass, []string{"delete.enabled", "true"}, []string{"!delete.enabled", "${TODO}"}},
		"update":            {confluentClass, []string{"pk.mode", "record_value", "pk.fields", "id", "insert.mode", "update"}, []string{`UPDATE \"t\" SET \"v\" = :p2 WHERE \"id\" = :p1`, "p1: {from: body.id}"}},
		"truncate":          {debeziumClass, []string{"primary.key.mode", "record_key", "primary.key.fields", "id", "insert.mode", "upsert", "delete.enabled", "true", "truncate.enabled", "true"}, []string{"truncates: delete"}},
		"dead letters":      {confluentClass, []string{"errors.tolerance", "all", "errors.deadletterqueue.topic.name", "dlq"}, []string{"copy_to:", "topic: dlq"}},
		"sasl":              {confluentClass, []string{consumer + "security.protocol", "SASL_SSL", consumer + "sasl.mechanism", "PLAIN", consumer + "sasl.jaas.config", `x.PlainLoginModule required username="app" password="secret";`}, []string{"tls: true", `sasl: {plain: {user: app, password: "${KAFKA_PASSWORD}"}}`}},
		"latest":            {confluentClass, []string{consumer + "auto.offset.reset", "latest", consumer + "isolation.level", "read_committed"}, []string{"start: latest"}},
		"zone":              {confluentClass, []string{"db.timezone", "Europe/Berlin"}, []string{"!db.timezone", "${TODO}"}},
		"unknown":           {confluentClass, []string{"made.up", "1"}, []string{"!made.up"}},
		"batch":             {confluentClass, []string{"batch.size", "500"}, []string{"batch: 500"}},
		"string value":      {confluentClass, append(smt(transforms+"HoistField$Value", "field", "line"), "value.converter", stringConverter, "fields.whitelist", ""), []string{"line: {from: body, type: text, required: false}"}},
		"replace":           {confluentClass, append(smt(transforms+"ReplaceField$Value", "include", "a,b", "renames", "a:c"), "fields.whitelist", ""), []string{"b: {from: body.b"}},
		"rename":            {confluentClass, smt(transforms+"ReplaceField$Value", "renames", "old:v"), []string{"v: {from: body.old"}},
		"exclude":           {confluentClass, smt(transforms+"ReplaceField$Value", "exclude", "v"), []string{"id: {from: body.id"}},
		"mask":              {confluentClass, smt(transforms+"MaskField$Value", "fields", "v", "replacement", "x"), []string{`default: x}`}},
		"mask to nothing":   {confluentClass, smt(transforms+"MaskField$Value", "fields", "v"), []string{"!transforms.x.fields", "${TODO}"}},
		"times":             {confluentClass, smt(transforms+"TimestampConverter$Value", "field", "v", "target.type", "Timestamp", "format", "yyyy-MM-dd HH:mm:ss"), []string{"type: timestamp, format: \"yyyy-MM-dd HH:mm:ss\", zone: UTC"}},
		"times as texts":    {confluentClass, smt(transforms+"TimestampConverter$Value", "field", "v", "target.type", "string"), []string{"!transforms.x.target.type", "${TODO}"}},
		"flatten":           {confluentClass, append(smt(transforms+"Flatten$Value", "delimiter", "_"), "fields.whitelist", "a_b"), []string{`a_b: {from: "coalesce(body.a_b, body.a.b)"`}},
		"extract":           {confluentClass, smt(transforms+"ExtractField$Value", "field", "after"), []string{"v: {from: body.after.v"}},
		"insert":            {confluentClass, smt(transforms+"InsertField$Value", "static.field", "v", "static.value", "here", "timestamp.field", "id!"), []string{"default: here", "id: {from: enqueued"}},
		"value to key":      {confluentClass, append(smt(transforms+"ValueToKey", "fields", "id"), "pk.mode", "record_key", "insert.mode", "upsert"), []string{"key: [id]", "id: {from: body.id}"}},
		"cast":              {confluentClass, smt(transforms+"Cast$Value", "spec", "v:int64"), []string{"v: {from: body.v, type: bigint"}},
		"router":            {confluentClass, smt(transforms+"RegexRouter", "regex", "(.)", "replacement", "x_$1y"), []string{"table: x_ty"}},
		"no equivalent":     {confluentClass, smt("com.example.Other$Value"), []string{"!transforms.x.type", "${TODO}"}},
		"predicate of none": {confluentClass, append(smt(transforms+"Cast$Value", "spec", "v:int64", "predicate", "p"), "predicates.p.type", transforms+"predicates.TopicNameMatches", "predicates.p.pattern", "other"), []string{"v: {from: body.v, required: false}"}},
		"predicate":         {confluentClass, append(smt(transforms+"Cast$Value", "predicate", "p"), "predicates.p.type", transforms+"predicates.HasHeaderKey"), []string{"!transforms.x.predicate", "${TODO}"}},
		"tombstones":        {confluentClass, append(smt(transforms+"Filter", "predicate", "p"), "predicates.p.type", transforms+"predicates.RecordIsTombstone", "delete.enabled", "true"), []string{"!delete.enabled"}},
		"flat deletes":      {confluentClass, append(smt("io.debezium.transforms.ExtractNewRecordState", "drop.tombstones", "true", "add.fields", "op,source.ts_ms"), "pk.mode", "record_key", "pk.fields", "id", "insert.mode", "upsert", "delete.enabled", "true", "fields.whitelist", "v,__op,__source_ts_ms"), []string{"only: {body.__op: {not: [d, t]}}", "__op: {from: body.__op", "__source_ts_ms: {from: body.__source_ts_ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := translate(t, sink(c.class, append(append([]string{}, whole...), c.keys...)...))
			for _, want := range c.want {
				if key, ok := strings.CutPrefix(want, "!"); ok {
					if !strings.Contains(fmt.Sprint(out.Todo, out.Different), key+" ") {
						t.Errorf("%s is not named: %v %v", key, out.Todo, out.Different)
					}
				} else if !strings.Contains(out.Text, want) {
					t.Errorf("no %s in\n%s", want, out.Text)
				}
			}
			if strings.Contains(out.Text, "secret") {
				t.Errorf("it has a password:\n%s", out.Text)
			}
			if (len(out.Todo) > 0) != strings.Contains(out.Text, "${TODO}") {
				t.Errorf("to do: %v\n%s", out.Todo, out.Text)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                          "no JSON object",
		`null`:                      "no JSON object",
		`{"name":"x"}`:              "no connector.class",
		`{"connector.class":"x.y"}`: "is none of",
		`{"connector.class":{}}`:    "must be a text",
		string(sink(confluentClass, "connection.url", "jdbc:oracle:thin:@h:1521:x")): "not to \"oracle\"",
		string(sink(confluentClass, "connection.url", "jdbc:mysql://h o/x")):         "host is not understood",
		string(sink(confluentClass, "topics", "")):                                   "neither topics nor",
		string(sink(confluentClass, "table.name.format", "sluice_x")):                "reserved",
	} {
		s, err := Read([]byte(text))
		if err == nil {
			_, err = s.Translate(&Config{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzTranslate translates anything: the file is valid, has no password, and does not run where
// something is to do.
func FuzzTranslate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(data)
		if err != nil {
			return
		}
		out, err := s.Translate(&Config{})
		if err != nil {
			return
		}
		if password := s.values["connection.password"]; len(password) > 12 && strings.Contains(out.Text, password) && !strings.Contains(s.Name+s.values["topics"], password) && !isVariable(password) {
			t.Errorf("it has the password %q:\n%s", password, out.Text)
		}
		if (len(out.Todo) > 0) != strings.Contains(out.Text, "memory_limit: ${TODO}") {
			t.Errorf("to do: %v\n%s", out.Todo, out.Text)
		}
	})
}
