package pipeline

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

const connection = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=a2V5"

// targetOf returns the target of a file without routes.
func targetOf[T target](p *Pipeline) T { return p.target().(T) }

// environment makes a lookup of NAME=value pairs; those of the sound file are
// there unless they are given another value, or none by a pair without "=".
func environment(pairs ...string) func(string) (string, bool) {
	set := map[string]string{"EVENTHUB_CONNECTION_STRING": connection, "DATABASE_URL": "sqlite:flights.db"}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if set[name] = value; !ok {
			delete(set, name)
		}
	}
	return func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	}
}

// sound is a valid file, which the tests modify.
const sound = `name: flights
source:
  eventhub:
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: flights
    consumer_group: $Default
  start: earliest
partitions: all
lease: {for: 30s, renew: 10s}
batch: 1000
retry: {attempts: 3, min: 100ms, max: 10s}
dead_letters: {store_bodies: true, body_limit: 256KiB}
database: ${DATABASE_URL}
target:
  insert:
    table: flights
    create: true
    columns:
      sequence_number: sequence
      delay: {from: body.delay, type: integer}
`

// edit replaces parts of the sound file: old, new, old, new, …
func edit(t *testing.T, edits ...string) string {
	t.Helper()
	return replaced(t, sound, edits)
}

func replaced(t testing.TB, text string, edits []string) string {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			t.Fatalf("the sound file has no %q", edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return text
}

func TestLoad(t *testing.T) {
	p, err := Parse("dir/p.yaml", []byte(sound), environment())
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "flights" || p.Table != "flights" || p.Partitions != sluice.AllPartitions || p.String() != "flights" ||
		p.Group != (sluice.Group{Namespace: "contoso.servicebus.windows.net", Topic: "flights", Name: "$Default"}) {
		t.Errorf("got %+v", p)
	}
	want := sluice.Config{
		LeaseFor: 30 * time.Second, RenewEvery: 10 * time.Second, MaxBatch: 1000, Attempts: 3,
		RetryMin: 100 * time.Millisecond, RetryMax: 10 * time.Second, BodyLimit: 256 << 10,
	}
	if !reflect.DeepEqual(p.config, want) {
		t.Errorf("config %+v, want %+v", p.config, want)
	}
	if p.storage.database != (sqliteDatabase{"flights.db"}) {
		t.Errorf("database %v", p.storage.database)
	}
	for lease, want := range map[string]time.Duration{"": 30 * time.Second, "lease: {for: 5m, renew: 100s}\n": 5 * time.Minute} {
		p, err := Parse("p.yaml", []byte(edit(t, "lease: {for: 30s, renew: 10s}\n", lease)), environment())
		if err != nil || p.LeaseFor() != want {
			t.Errorf("%s leases last %v, %v", lease, p.LeaseFor(), err)
		}
	}
}

func TestLoadVariations(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		env   []string
		check func(p *Pipeline) bool
	}{
		"name of the file": {edit(t, "name: flights\n", ""), nil, func(p *Pipeline) bool { return p.Name == "p" }},
		"partitions":       {edit(t, "partitions: all", "partitions: ${PARTITIONS:-all}"), []string{"PARTITIONS=4"}, func(p *Pipeline) bool { return p.Partitions == 4 }},
		"balanced":         {edit(t, "partitions: all", "partitions: balanced"), nil, func(p *Pipeline) bool { return p.Partitions == sluice.Balanced }},
		"default":          {edit(t, "partitions: all", "partitions: ${PARTITIONS:-3}"), nil, func(p *Pipeline) bool { return p.Partitions == 3 }},
		"default if empty": {edit(t, "partitions: all", "partitions: ${PARTITIONS:-3}"), []string{"PARTITIONS="}, func(p *Pipeline) bool { return p.Partitions == 3 }},
		"line break":       {sound, []string{"DATABASE_URL=sqlite:x.db\n"}, func(p *Pipeline) bool { return p.storage.database == sqliteDatabase{"x.db"} }},
		"sqlite URL":       {sound, []string{"DATABASE_URL=sqlite:///tmp/x.db"}, func(p *Pipeline) bool { return p.storage.database == sqliteDatabase{"/tmp/x.db"} }},
		"part of a value": {edit(t, "${DATABASE_URL}", "postgres://app:${PASSWORD}@db/$${x}"), []string{"PASSWORD=s3"}, func(p *Pipeline) bool {
			return p.storage.database == postgresDatabase{"postgres://app:s3@db/${x}"}
		}},
		"no bodies":  {edit(t, "store_bodies: true", "store_bodies: false"), nil, func(p *Pipeline) bool { return p.config.BodyLimit == -1 }},
		"limit zero": {edit(t, "256KiB", "0"), nil, func(p *Pipeline) bool { return p.config.BodyLimit == -1 }},
		"sizes":      {edit(t, "256KiB", "1.5 MiB"), nil, func(p *Pipeline) bool { return p.config.BodyLimit == 3<<19 }},
		"start":      {edit(t, "earliest", "24h ago"), nil, func(p *Pipeline) bool { return p.config.Start == sluice.Ago(24*time.Hour) }},
		"hub of the connection string": {edit(t, "    hub: flights\n", ""), []string{"EVENTHUB_CONNECTION_STRING=" + connection + ";EntityPath=orders"}, func(p *Pipeline) bool {
			return p.Group.Topic == "orders"
		}},
		"credential": {edit(t, "connection: ${EVENTHUB_CONNECTION_STRING}", "namespace: Fabrikam.servicebus.windows.net\n    credential: default"), []string{"EVENTHUB_CONNECTION_STRING"}, func(p *Pipeline) bool {
			return p.Group.Namespace == "fabrikam.servicebus.windows.net"
		}},
		"checkpoint namespace": {edit(t, "    hub: flights", "    hub: flights\n    checkpoint_namespace: there"), nil, func(p *Pipeline) bool { return p.Group.Namespace == "there" }},
		"key of an emulator": {edit(t, "${EVENTHUB_CONNECTION_STRING}", "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"), nil, func(p *Pipeline) bool {
			return p.Group.Namespace == "localhost"
		}},
		"words that YAML takes for others": {edit(t, "table: flights", "table: no"), nil, func(p *Pipeline) bool { return p.Table == "no" }},
		"schema":                           {edit(t, "table: flights", "table: air.flights"), nil, func(p *Pipeline) bool { return p.Table == "air.flights" }},
		"statement": {edit(t, sound[strings.Index(sound, "  insert:"):], "  statement:\n    sql: INSERT INTO t VALUES (:a)\n    parameters: {a: sequence}\n"), nil, func(p *Pipeline) bool {
			return p.Table == "" && targetOf[*statementTarget](p).statement.text == "INSERT INTO t VALUES (?1)"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse("p.yaml", []byte(c.file), environment(c.env...))
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(p) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestTrusting(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := tlsConfigWithRoots(path)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

// Keys and passwords belong in variables; those in the file itself are found,
// also in defaults.
func TestLiteralSecrets(t *testing.T) {
	const connection, database = "connection: ${EVENTHUB_CONNECTION_STRING}", "database: ${DATABASE_URL}"
	for replaced, refused := range map[string]bool{
		"connection: Endpoint=sb://x.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=b":                         true,
		"connection: Endpoint=sb://x.servicebus.windows.net;SharedAccessSignature=b":                                         true,
		"connection: ${CONNECTION:-Endpoint=sb://x.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=b}":          true,
		"connection: Endpoint=sb://x.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=${KEY:-b}":                 true,
		"connection: Endpoint=sb://x.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=${KEY}":                    false,
		"connection: Endpoint=sb://x.servicebus.windows.net;SharedAccessKeyName=a;SharedAccessKey=${KEY};EntityPath=flights": false,
		"connection: Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true":            false,
		"database: postgres://app:secret@db/x":                             true,
		"database: postgresql://:secret@db/x":                              true,
		"database: ${URL:-postgres://app:secret@db/x}":                     true,
		"database: postgres://app:${KEY:-secret}@db/x":                     true,
		"database: postgres://app@db/x?password=secret":                    true,
		"database: postgres://app@db/x?sslmode=require&sslpassword=secret": true,
		"database: postgres://app@db/x?password=${KEY}":                    false,
		"database: postgres://${APP:-app}:${KEY}@db/x":                     false,
		"database: postgres://app@db:5432/x":                               false,
		"database: sqlite:a:b@c":                                           false,
	} {
		old := connection
		if strings.HasPrefix(replaced, "database") {
			old = database
		}
		_, err := Parse("p.yaml", []byte(edit(t, old, replaced)), environment("KEY=canary"))
		switch {
		case !refused && err != nil:
			t.Errorf("%s: %v", replaced, err)
		case refused && (err == nil || !strings.Contains(err.Error(), ": holds a ") || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", replaced, err)
		}
	}
}

// Every line names file, line, column and key, and what to do.
func TestLoadErrors(t *testing.T) {
	insert := sound[strings.Index(sound, "  insert:"):]
	for _, c := range []struct {
		file string
		env  []string
		want string
	}{
		// keys
		{edit(t, "consumer_group", "consumer_grup"), nil, `p.yaml:6:5: source.eventhub.consumer_grup: unknown key, did you mean consumer_group?`},
		{edit(t, "partitions: all", "partitons: all"), nil, `p.yaml:8:1: partitons: unknown key, did you mean partitions?`},
		{edit(t, "dead_letters:", "Dead-Letters:"), nil, `p.yaml:12:1: Dead-Letters: unknown key, did you mean dead_letters?`},
		{edit(t, "renew: 10s", "renwe: 10s"), nil, `p.yaml:9:19: lease.renwe: unknown key, did you mean renew?`},
		{edit(t, "batch: 1000", "zebra: 1000"), nil, `p.yaml:10:1: zebra: unknown key: known keys are assign, backlog, batch, checkpoint_every, database, dead_letters, fill, lease, leases, memory, memory_limit, name, old_stamp_key, only, order, otherwise, partitions, prefetch, rate, retry, retry_throttled, routes, silent_after, source, stages, stall_after, stamp_key, target, tests`},
		{edit(t, "batch: 1000", "partitions: 1000"), nil, `p.yaml:10:1: partitions: duplicate key: line 8 has it already`},
		{edit(t, "batch: 1000", "? [a]\n: b"), nil, `p.yaml:10:3: a key must be a scalar`},
		{edit(t, "partitions: all\n", ""), nil, `p.yaml:1:1: partitions: is missing`},
		{edit(t, "    table: flights\n", ""), nil, `p.yaml:15:3: target.insert.table: is missing`},
		{edit(t, insert, ""), nil, `p.yaml:14:1: target: is empty: write keys and values under it`},
		// types and values
		{edit(t, "lease: {for: 30s, renew: 10s}", "lease: 30s"), nil, `p.yaml:9:1: lease: a single value where keys and values should be`},
		{edit(t, "lease: {for: 30s, renew: 10s}", "lease: [30s]"), nil, `p.yaml:9:1: lease: a list where keys and values should be`},
		{edit(t, "batch: 1000", "batch: {a: 1}"), nil, `p.yaml:10:1: batch: keys and values where a single value should be`},
		{edit(t, "batch: 1000", "batch:"), nil, `p.yaml:10:1: batch: is empty`},
		{edit(t, "batch: 1000", "batch: 1e3"), nil, `p.yaml:10:1: batch: "1e3": write a whole number from 1 to 100000`},
		{edit(t, "batch: 1000", "batch: 0"), nil, `p.yaml:10:1: batch: "0": write a whole number from 1 to 100000`},
		{edit(t, "partitions: all", "partitions: {ordinal: 3, of: 3}"), nil, `p.yaml:8:1: partitions: ordinal 3 of 3 processes: the ordinals are those from 0 to 2`},
		{edit(t, "partitions: all", "partitions: {ordinal: 3}"), nil, `p.yaml:8:1: partitions.of: is missing`},
		{edit(t, "partitions: all", "partitions: al"), nil, `p.yaml:8:1: partitions: "al": write all, balanced, a whole number from 1 to 4096, or {ordinal: N, of: PROCESSES}`},
		{edit(t, "renew: 10s", "renew: 11s"), nil, `p.yaml:9:1: lease: a lease of 30s renewed every 11s: it must last at least three renewals, so that one lost renewal does not lose it`},
		{edit(t, "for: 30s", "for: 30"), nil, `p.yaml:9:9: lease.for: "30": write a duration with its unit, such as 500ms, 30s or 1m30s`},
		{edit(t, "for: 30s", "for: -1s"), nil, `p.yaml:9:9: lease.for: "-1s": must be more than zero`},
		{edit(t, "max: 10s", "later: soon"), nil, `p.yaml:11:34: retry.later: "soon": write none, or a list such as [10s, 1m, 10m]`},
		{edit(t, "max: 10s", "later: [10ms]"), nil, `p.yaml:11:42: retry.later[0]: "10ms": write a duration from 1s to 720h0m0s`},
		{edit(t, "max: 10s", "later: []"), nil, `p.yaml:11:34: retry.later: is an empty list`},
		{edit(t, "max: 10s", "max: 10ms"), nil, `p.yaml:11:1: retry: waits from 100ms to 10ms: min must not be above max`},
		{edit(t, "min: 100ms, max: 10s", "max: 50ms"), nil, `p.yaml:11:1: retry: waits from 100ms to 50ms: min must not be above max`},
		{edit(t, "store_bodies: true", "store_bodies: yes"), nil, `p.yaml:12:16: dead_letters.store_bodies: "yes": write one of true, false`},
		{edit(t, "store_bodies: true", "store_bodies: ture"), nil, `p.yaml:12:16: dead_letters.store_bodies: "ture": did you mean true?`},
		{edit(t, "256KiB", "256 KByte"), nil, `p.yaml:12:36: dead_letters.body_limit: "256 KByte": write a number of bytes up to 67108864, such as 4096, 256KiB or 1MB`},
		{edit(t, "start: earliest", "start: yesterday"), nil, `p.yaml:7:3: source.start: "yesterday": write earliest, latest, an RFC 3339 time, "24h ago", "sequence N" or "offset O"`},
		// variables
		{sound, []string{"DATABASE_URL"}, `p.yaml:13:1: database: the environment variable DATABASE_URL is not set`},
		{sound, []string{"DATABASE_URL="}, `p.yaml:13:1: database: is empty (it comes from ${DATABASE_URL})`},
		{edit(t, "batch: 1000", "batch: ${BATCH}"), []string{"BATCH=many"}, `p.yaml:10:1: batch: the value from ${BATCH}: write a whole number from 1 to 100000`},
		{edit(t, "batch: 1000", "batch: ${BATCH"), nil, `p.yaml:10:1: batch: ${ has no } after it (write $${ for a literal ${)`},
		{edit(t, "batch: 1000", "batch: ${BATCH SIZE}"), nil, `p.yaml:10:1: batch: ${BATCH SIZE}: not the name of a variable (write $${ for a literal ${)`},
		// hub
		{sound, []string{"EVENTHUB_CONNECTION_STRING=Endpoint=sb://x/;SharedAccessKeyName=k"}, `p.yaml:4:5: source.eventhub.connection: connection string: no SharedAccessKey: copy the whole string`},
		{edit(t, "${EVENTHUB_CONNECTION_STRING}", connection), nil, `p.yaml:4:5: source.eventhub.connection: holds a key: put the connection string into an environment variable and write ${EVENTHUB_CONNECTION_STRING}`},
		{edit(t, "    connection: ${EVENTHUB_CONNECTION_STRING}\n", ""), nil, `p.yaml:3:3: source.eventhub: needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)`},
		{edit(t, "    hub:", "    namespace: x\n    hub:"), nil, `p.yaml:3:3: source.eventhub: needs one of connection (write ${EVENTHUB_CONNECTION_STRING}) and namespace (with credential: default)`},
		{edit(t, "    hub:", "    credential: default\n    hub:"), nil, `p.yaml:4:5: source.eventhub.connection: credential goes with namespace only, and a namespace always needs it (credential: default)`},
		{edit(t, "connection: ${EVENTHUB_CONNECTION_STRING}", "namespace: x"), nil, `p.yaml:4:5: source.eventhub.namespace: credential goes with namespace only, and a namespace always needs it (credential: default)`},
		{edit(t, "    hub:", "    tls_ca_file: /nowhere/ca.pem\n    hub:"), nil, `p.yaml:5:5: source.eventhub.tls_ca_file: certificates: open /nowhere/ca.pem: no such file or directory`},
		{edit(t, "    hub:", "    websocket: true\n    proxy: corporate\n    hub:"), nil, `p.yaml:6:5: source.eventhub.proxy: not the URL of a proxy: write it like http://proxy.example.com:3128`},
		{edit(t, "    hub:", "    websocket: true\n    proxy: http://me:"+secret+"@proxy.example.com:3128\n    hub:"), nil, `p.yaml:6:5: source.eventhub.proxy: holds a password: put it into an environment variable and write ${PROXY}, or http://user:${PROXY_PASSWORD}@proxy.example.com:3128`},
		{edit(t, "    hub:", "    proxy: http://proxy.example.com:3128\n    hub:"), nil, `p.yaml:3:3: source.eventhub: proxy goes with websocket: true only: AMQP's own port does not go through a proxy`},
		{edit(t, "    hub:", "    tls_ca_file: load_test.go\n    hub:"), nil, `p.yaml:5:5: source.eventhub.tls_ca_file: certificates: load_test.go has none in PEM`},
		// database
		{sound, []string{"DATABASE_URL=oracle://u:secret@x/d"}, `p.yaml:13:1: database: write sqlite:PATH, or postgres://, mysql:// or mariadb:// and user@host:port/database, or sqlserver://user@host:port?database=name`},
		{sound, []string{"DATABASE_URL=mysql"}, `p.yaml:13:1: database: write sqlite:PATH, or postgres://, mysql:// or mariadb:// and user@host:port/database, or sqlserver://user@host:port?database=name`},
		{sound, []string{"DATABASE_URL=sqlserver://u:secret@x"}, `p.yaml:13:1: database: SQL Server URL: names no database: add it, as in sqlserver://user@host:1433?database=name`},
		{sound, []string{"DATABASE_URL=sqlserver://u:secret@x?database=d&credential=default"}, `p.yaml:13:1: database: has a user and credential=default: write one of them`},
		{sound, []string{"DATABASE_URL=sqlserver://x?database=d&credential=default"}, `p.yaml:13:1: database: credential=default sends a token, which needs TLS: add encrypt=true`},
		{sound, []string{"DATABASE_URL=sqlserver://x?database=d&fedauth=ActiveDirectoryDefault"}, `p.yaml:13:1: database: has the parameter fedauth: for Entra ID write credential=default and no user`},
		{sound, []string{"DATABASE_URL=mysql:secret@tcp(x)/d"}, `p.yaml:13:1: database: write sqlite:PATH, or postgres://, mysql:// or mariadb:// and user@host:port/database, or sqlserver://user@host:port?database=name`},
		{sound, []string{"DATABASE_URL=mysql://u:secret@x"}, `p.yaml:13:1: database: MySQL URL: names no database: add it after the host, as in mysql://user@host:3306/database`},
		{sound, []string{"DATABASE_URL=mariadb://u:sec/ret@x/d"}, `p.yaml:13:1: database: MySQL URL: cannot be read: it must have the form mysql://user:password@host:3306/database, with special characters of the password as %XX`},
		{sound, []string{"DATABASE_URL=sqlite:"}, `p.yaml:13:1: database: sqlite: has no path: write sqlite:PATH`},
		{sound, []string{"DATABASE_URL=postgres://a:b%zz@h/d"}, `p.yaml:13:1: database: not a postgres:// URL: special characters in the user's name and password must be percent-encoded`},
		{edit(t, "${DATABASE_URL}", "postgres://app:s3cret@db/flights"), nil, `p.yaml:13:1: database: holds a password: put it into an environment variable and write ${DATABASE_URL}, or postgres://user:${PASSWORD}@host/database`},
		// target
		{edit(t, insert, "  insrt: {}\n"), nil, `p.yaml:15:3: target.insrt: unknown key, did you mean insert?`},
		{edit(t, insert, "  insert: {table: t, columns: {a: key}}\n  statement: {sql: 'SELECT 1'}\n"), nil, `p.yaml:14:1: target: needs one of insert, statement, cosmos, eventhub, servicebus, kafka and http`},
		{edit(t, "table: flights", "table: a.b.c"), nil, `p.yaml:16:5: target.insert.table: "a.b.c": write table or schema.table`},
		{edit(t, "table: flights", "table: sluice_checkpoints"), nil, `p.yaml:16:5: target.insert.table: "sluice_checkpoints": names that begin with sluice_ are reserved for Sluice's own tables`},
		{edit(t, "table: flights", "table: "+strings.Repeat("x", 64)), nil, `p.yaml:16:5: target.insert.table: "` + strings.Repeat("x", 40) + `…": the name has more than 63 bytes`},
		{edit(t, "      sequence_number: sequence\n      delay: {from: body.delay, type: integer}\n", "      {}\n"), nil, `p.yaml:15:3: target.insert: has no columns: write them as NAME: {from: …, type: …}`},
		{edit(t, "sequence_number: sequence", "sequence_number: sequense"), nil, `p.yaml:19:7: target.insert.columns.sequence_number: "sequense": did you mean sequence?`},
		{edit(t, "sequence_number: sequence", "sequence_number: headers.x"), nil, `p.yaml:19:7: target.insert.columns.sequence_number: "headers.x": write body, content_type, correlation_id, created, enqueued, key, message_id, offset, partition, sequence, topic, type, body.PATH, properties.NAME or a function of them`},
		{edit(t, "body.delay", "'body.delay.[0]'"), nil, `p.yaml:20:15: target.insert.columns.delay.from: "body.delay.[0]": a key must follow the dot (letters, digits, _ and -; any other key is written ["key"])`},
		{edit(t, "type: integer", "type: int"), nil, `p.yaml:20:33: target.insert.columns.delay.type: "int": write one of text, smallint, integer, bigint, real, double, numeric, boolean, timestamp, date, bytes, json`},
		{edit(t, "type: integer", "type: intger"), nil, `p.yaml:20:33: target.insert.columns.delay.type: "intger": did you mean integer?`},
		{edit(t, "body.delay", "enqueued"), nil, `p.yaml:20:7: target.insert.columns.delay: enqueued can't become integer: write one of timestamp, text`},
		{edit(t, "type: integer", "type: integer, required: true, default: 0"), nil, `p.yaml:20:7: target.insert.columns.delay: is required and has a default: remove one of them`},
		{edit(t, "type: integer", "type: integer, default: 1.5"), nil, `p.yaml:20:48: target.insert.columns.delay.default: "1.5" is not a whole number`},
		{edit(t, "type: integer", "type: json, default: '{'"), nil, `p.yaml:20:45: target.insert.columns.delay.default: not JSON at byte 1: the end where a key in double quotes should be`},
		{edit(t, insert, "  statement:\n    sql: INSERT INTO t VALUES (:dely)\n    parameters:\n      delay: body.delay\n"), nil,
			"p.yaml:16:5: target.statement.sql: :dely is not among the parameters, did you mean :delay?\n" +
				"p.yaml:18:7: target.statement.parameters.delay: the statement does not use :delay"},
		{edit(t, insert, "  statement: {sql: COMMIT}\n"), nil, `p.yaml:15:15: target.statement.sql: begins with "commit": write one of insert, update, delete, merge, replace, with, select, which leave the transaction open`},
		// YAML
		{"", nil, `p.yaml: empty`},
		{"# nothing\n", nil, `p.yaml: empty`},
		{"just text", nil, `p.yaml:1:1: a single value where keys and values should be`},
		{"name: a: b", nil, `p.yaml: not YAML: mapping values are not allowed in this context`},
		{edit(t, "batch: 1000", "batch: 1000: x"), nil, `p.yaml:10:1: not YAML: mapping values are not allowed in this context`},
		{edit(t, "batch: 1000", "batch: \"1000"), nil, `p.yaml:10:1: not YAML: found unexpected end of stream`},
		{edit(t, "batch: 1000", " batch: 1000"), nil, `p.yaml:10:1: not YAML: did not find expected key`},
		{edit(t, "batch: 1000", "batch: [1000"), nil, `p.yaml:10:1: not YAML: did not find expected ',' or ']'`},
		{sound + "---\n" + sound, nil, `p.yaml:21:1: a second document: write one per file`},
		{edit(t, "lease: {for", "lease: &l {for", "batch: 1000", "batch: *l"), nil, "p.yaml:9:8: &l: anchors are not supported: write the value itself\np.yaml:10:8: *l: aliases are not supported: write the value itself"},
		{edit(t, "batch: 1000", "batch: !!int 1000"), nil, `p.yaml:10:8: !!int: tags are not supported`},
		{strings.Repeat("a: {", 101), nil, `p.yaml:2:1: not YAML: did not find expected node content`},
		{strings.Repeat("[", 200) + strings.Repeat("]", 200), nil, `p.yaml:1:102: nested too deep`},
		{strings.Repeat("#", strictyaml.MaxSize+1), nil, `p.yaml: larger than 1048576 bytes`},
		// several at once, in the file's order
		{edit(t, "partitions: all", "partitions: none", "batch: 1000", "batch: x", "    hub:", "    hup:"), []string{"DATABASE_URL"},
			"p.yaml:5:5: source.eventhub.hup: unknown key, did you mean hub?\n" +
				"p.yaml:8:1: partitions: \"none\": write all, balanced, a whole number from 1 to 4096, or {ordinal: N, of: PROCESSES}\n" +
				"p.yaml:10:1: batch: \"x\": write a whole number from 1 to 100000\n" +
				"p.yaml:13:1: database: the environment variable DATABASE_URL is not set"},
	} {
		_, err := Parse("p.yaml", []byte(c.file), environment(c.env...))
		if err == nil {
			t.Errorf("no error, want %s", c.want)
		} else if err.Error() != c.want {
			t.Errorf("got  %s\nwant %s", err, c.want)
		}
	}
}

func TestLoadFile(t *testing.T) {
	_, err := Load("/nowhere/p.yaml")
	if want := "/nowhere/p.yaml: cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory was read")
	}
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, make([]byte, strictyaml.MaxSize+5), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasSuffix(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseFile(path, data, environment("DATABASE_URL=postgres://localhost/x", "COSMOS_RU=400", "COSMOS_ENDPOINT=https://localhost", "COSMOS_KEY=a2V5", "KAFKA_BROKERS=localhost:9092", "TARGET_URL=https://localhost", "SCHEMA_FILE=../examples/flight.avsc", "BLOB_CONTAINER=https://a.blob.core.windows.net/c?sig=x")); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sound)
	f.Add(strings.Replace(sound, sound[strings.Index(sound, "  insert:"):], "  statement: {sql: 'INSERT INTO t VALUES (:a, ''x'')', parameters: {a: {from: key, default: ''}}}", 1))
	f.Add(soundCosmos)
	f.Add(soundStages)
	f.Add(soundTopics)
	f.Add(soundHTTP)
	f.Add(soundRoutes)
	f.Add("a: &a [*a, ? {b: c}, !!x y, ${Z:-d}]\n--- |\n  text")
	lookup := environment("EVENTHUB_CONNECTION_STRING="+connection, "DATABASE_URL=postgres://u:"+secret+"@h/d", "SECRET="+secret, "KAFKA_BROKERS=h:9092", "KAFKA_PASSWORD="+secret)
	f.Fuzz(func(t *testing.T, file string) {
		all, err := ParseFile("p.yaml", []byte(file), lookup)
		if err == nil {
			for _, p := range all.Stages {
				whole := true
				for _, r := range p.routing.routes {
					whole = whole && !slices.Contains(r.target.mappings(), nil) && (!goesTo[*httpTarget](r) || r.target.(*httpTarget).url != "")
				}
				if p.Group.Topic == "" || p.storage.database == nil || !whole || p.Rollup && p.rollup.mapping == nil {
					t.Fatalf("incomplete: %+v", p)
				}
			}
			if len(all.Stages) == 0 {
				t.Fatal("no stages")
			}
			return
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "p.yaml:") {
				t.Fatalf("a line without its place: %q", line)
			}
		}
		if strings.Contains(err.Error(), secret) && !strings.Contains(file, secret) {
			t.Fatalf("a variable is shown: %v", err)
		}
	})
}
