package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

const soundCosmos = `name: docs
source:
  eventhub:
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: docs
partitions: all
leases:
  sql: ${DATABASE_URL}
rate: {events: 1000, cluster: true}
backlog: {events: 5000, bytes: 1MiB, age: 1m, fatal: true}
checkpoint_every: 2s
order: none
dead_letters: {hold_keys: true}
target:
  cosmos:
    endpoint: ${COSMOS_ENDPOINT}
    key: ${COSMOS_KEY}
    database: db
    container: docs
    operation: create
    conditional: true
    mode: point
    id: body.id
    partition_key: body.key
`

func parseCosmos(edits ...string) (*Pipeline, error) {
	text := soundCosmos
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			panic("the sound file has no " + edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return Parse("p.yaml", []byte(text), environment("DATABASE_URL=sqlite:x.db", "COSMOS_ENDPOINT=https://localhost:8081", "COSMOS_KEY=c2VjcmV0"))
}

func TestCosmosFile(t *testing.T) {
	p, err := parseCosmos()
	if err != nil {
		t.Fatal(err)
	}
	want := sluice.AtLeastOnceConfig{
		Order: sluice.OrderNone, CheckpointEvery: 2 * time.Second, MaxEvents: 5000, MaxBytes: 1 << 20, MaxAge: time.Minute, AgeFatal: true,
		OnDeadLetter: sluice.KeyHold,
	}
	if got := p.atLeastOnce.config; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := p.atLeastOnce; s.events != 1000 || !s.cluster || s.ru != 0 {
		t.Errorf("rate %+v", s)
	}
	if c := targetOf[*cosmosTarget](p); c.operation != cosmos.Create || !c.conditional || c.config.Mode != cosmos.Point || c.endpoint != "https://localhost:8081" {
		t.Errorf("target %+v", c)
	}
	regions, err := parseCosmos("    mode: point\n", "    mode: point\n    preferred_regions: West Europe, North Europe\n")
	if err != nil || !slices.Equal(targetOf[*cosmosTarget](regions).config.Client.PreferredRegions, []string{"West Europe", "North Europe"}) {
		t.Errorf("preferred regions: %v", err)
	}
	if _, err = parseCosmos("  sql: ${DATABASE_URL}", "  blob: {container: sluice, connection: ${DATABASE_URL}, prefix: a/}"); err == nil {
		t.Error("a variable within braces of YAML's own was taken")
	}
	if _, err = parseCosmos("${COSMOS_KEY}", "${COSMOS_KEY:-"+emulatorKey+"}"); err != nil {
		t.Errorf("the emulator's key: %v", err)
	}
	if p, err = parseCosmos("  sql: ${DATABASE_URL}", "  blob:\n    container: sluice\n    connection: ${DATABASE_URL}\n    prefix: a/"); err != nil {
		t.Fatal(err)
	}
	if p.storage.database != (blobContainer{where: "sluice", connection: "sqlite:x.db", prefix: "a/"}) {
		t.Errorf("leases %+v", p.storage.database)
	}
}

func TestCosmosMistakes(t *testing.T) {
	for _, c := range []struct {
		edits []string
		want  string
	}{
		{[]string{"rate: {events: 1000, cluster: true}", "rate: {events: 1000, ru: 5}"}, "p.yaml:9:1: rate: needs one of events (records a second) and ru (request units a second)"},
		{[]string{"events: 1000", "ru: 1000"}, "p.yaml:9:1: rate: cluster is for events only: divide the ru by the number of processes"},
		{[]string{"events: 1000", "events: 0"}, `p.yaml:9:8: rate.events: "0": write a whole number from 1 to 1000000`},
		{[]string{"order: none", "order: any"}, `p.yaml:12:1: order: "any": write one of key, partition, none`},
		{[]string{"${COSMOS_KEY}", "c2VjcmV0"}, "p.yaml:17:5: target.cosmos.key: holds a key: put it into an environment variable and write ${COSMOS_KEY}"},
		{[]string{"    key: ${COSMOS_KEY}\n", ""}, "p.yaml:15:3: target.cosmos: needs one of key (write ${COSMOS_KEY}) and credential: default"},
		{[]string{"partition_key: body.key", "partition_key: key"}, "p.yaml:24:5: target.cosmos.partition_key: key is not in the body, so the document needs it as a property: write {NAME: key}"},
		{[]string{"partition_key: body.key", "partition_key: {a: key, b: body.b, c: partition, d: sequence}"}, "p.yaml:24:5: target.cosmos.partition_key: has 4 parts: write 1 to 3"},
		{[]string{"id: body.id", "id: body"}, "p.yaml:23:5: target.cosmos.id: cannot be the whole body: write body.PATH"},
		{[]string{"leases:\n  sql: ${DATABASE_URL}\n", "database: ${DATABASE_URL}\n"}, "p.yaml:7:1: database: is for a target in a database: for this target write leases: {sql: …}, where leases, checkpoints and dead letters are stored"},
		{[]string{"leases:\n  sql: ${DATABASE_URL}\n", ""}, "leases are missing: write leases: {sql: sqlite:PATH}, where checkpoints and dead letters are stored too"},
		{[]string{"  sql: ${DATABASE_URL}", "  sql: ${DATABASE_URL}\n  blob: https://a.blob.core.windows.net/c?sig=x"}, "p.yaml:9:3: leases.blob: holds a secret: put it into an environment variable and write ${BLOB_CONTAINER}, or ${STORAGE_CONNECTION_STRING}"},
		{[]string{"  sql: ${DATABASE_URL}", "  blob: sluice\nlease: {for: 90s}"}, "p.yaml:7:1: leases: lease of 1m30s: Azure Blob Storage grants leases of 15 s to 60 s: set the lease's length between them (30 s is the default): refused"},
		{[]string{"target:\n  cosmos:", "database: ${DATABASE_URL}\ntarget:\n  statement: {sql: SELECT 1}\n  cosmoss:"}, "p.yaml:17:3: target.cosmoss: unknown key, did you mean cosmos?"},
	} {
		_, err := parseCosmos(c.edits...)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	_, err := Parse("p.yaml", []byte(edit(t, "batch: 1000", "batch: 1000\nrate: {events: 5}")), environment())
	if want := "p.yaml:11:1: rate: is for a cosmos, eventhub, servicebus, kafka or http target: remove it, a target in a database has one transaction for each batch"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = Parse("p.yaml", []byte(edit(t, "database: ${DATABASE_URL}\n", "")), environment())
	if err == nil || !strings.Contains(err.Error(), "database is missing: write sqlite:PATH") {
		t.Errorf("got  %v", err)
	}
}

func TestCosmosRecords(t *testing.T) {
	for _, c := range []struct{ id, key, body, want string }{
		{"body.id", "body.key", `{"id":"a","key":"k","n":1}`, `a [k] {"id":"a","key":"k","n":1}`},
		{"body.id", "body.key", `{"id":7,"key":12.5}`, `7 [12.5] {"id":"7","key":12.5}`},
		{"body.id", "body.key", ` { "key" : 1, "id":12345678901234567890 , "a":[1] }`, `12345678901234567890 [1] {"key":1,"id":"12345678901234567890","a":[1]}`},
		{"body.n", "body.key", `{"n":7,"key":1}`, `7 [1] {"n":7,"key":1}`},
		{"'replace(body.id, \"/\", \"_\")'", "body.key", `{"id":"a/b","key":1}`, `a_b [1] {"id":"a_b","key":1}`},
		{"body.id", "body.key", `{"id":"a/b","key":1}`, `id: body.id: "a/b" contains /, which no id in Cosmos DB may have: put another character in its place, as in id: 'replace(body.id, "/", "_")'`},
		{"body.id", "body.key", `{"id":"a\\b","key":1}`, `id: body.id: "a\\b" contains \, which no id in Cosmos DB may have: put another character in its place, as in id: 'replace(body.id, "\\", "_")'`},
		{"body.id", "body.key", `{"id":"a","key":null}`, `a [<nil>] {"id":"a","key":null}`},
		{"body.id", "body.key", `{"id":"a","key":true}`, `a [true] {"id":"a","key":true}`},
		{"body.id", "{x: body.a.b, y: body.c}", `{"id":"a","a":{"b":"1"},"c":2}`, `a [1 2] {"id":"a","a":{"b":"1"},"c":2}`},
		{"message_id", "{k: key, p: partition}", ` { "n":1}`, `mid [kk 3] {"p":"3","k":"kk","n":1}`},
		{"sequence", "{k: key}", `{}`, `42 [kk] {"k":"kk"}`},
		{"sequence", "{k: key}", `{"k":"kk"}`, `42 [kk] {"k":"kk"}`},
		{"sequence", "{k: key}", `{"k":"other"}`, `partition key: key: the body has another value in its property k`},
		{"body.id", "body.key", `{"id":"a"}`, `partition key: body.key: is missing`},
		{"body.id", "body.key", `{"id":"a","key":[1]}`, `partition key: body.key: is neither a text, a number, a boolean nor null`},
		{"body.id", "body.key", `{"key":"a"}`, `id: body.id: is missing, or neither a text nor a number`},
		{"body.id", "body.key", `{"id":"a","key":`, `body: not JSON at byte 16: the end where a value should be`},
	} {
		p, err := parseCosmos("id: body.id", "id: "+c.id, "partition_key: body.key", "partition_key: "+c.key)
		if err != nil {
			t.Errorf("%s, %s: %v", c.id, c.key, err)
			continue
		}
		e := &sluice.Event{Partition: "3", Sequence: 42, Key: "kk", MessageID: "mid", Body: []byte(c.body)}
		var got string
		docs, err := targetOf[*cosmosTarget](p).documents(context.Background(), e)
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %v %s", docs[0].ID, docs[0].PartitionKey, docs[0].Body)
			if !json.Valid(docs[0].Body) || docs[0].Source == nil || docs[0].Source.Sequence != 42 {
				t.Errorf("document %+v", docs[0])
			}
		}
		if got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.body, got, c.want)
		}
	}
}

// TestCosmosSourceOfRedrives: the document of a dead letter of an earlier incarnation names that
// one. Its sequence number must not be compared with those of the recreated hub, whose events would
// lose.
func TestCosmosSourceOfRedrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := parseCosmos()
		if err != nil {
			t.Fatal(err)
		}
		group := sluice.Group{Namespace: "test", Topic: "flights", Name: "g"}
		hub, store := sluicetest.NewHub(group, 1), &sluicetest.Store{}
		var sources []string
		run := func(fails bool) {
			records := func(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
				docs, err := targetOf[*cosmosTarget](p).documents(ctx, e)
				if err != nil || fails {
					return nil, errors.Join(err, driver.Reject(errors.New("refused")))
				}
				sources = append(sources, docs[0].Source.Topic+fmt.Sprint("/", docs[0].Source.Sequence))
				return []*sluice.Event{e}, nil
			}
			sink, err := sluice.Workers(1, func(context.Context, *sluice.Event) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			consumer, err := sluice.New(hub, &sluicetest.Leases{}, sluice.AtLeastOnce(store, records, sink, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- consumer.Run(t.Context()) }()
			time.Sleep(time.Minute)
			if err := errors.Join(consumer.Stop(t.Context()), <-ended); err != nil {
				t.Fatal(err)
			}
		}
		body := []byte(`{"id":"a","key":"k"}`)
		hub.Append("0", &sluice.Event{Body: body}, &sluice.Event{Body: body})
		before, _ := hub.Describe(t.Context())
		run(true)
		hub.Recreate()
		now, _ := hub.Describe(t.Context())
		if _, err := store.Reset(t.Context(), group, "0", now.Incarnation, sluice.Position{Sequence: -1}, "set"); err != nil {
			t.Fatal(err)
		}
		if n, err := store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Now()); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		hub.Append("0", &sluice.Event{Body: body})
		run(false)
		slices.Sort(sources)
		want := []string{"flights " + before.Incarnation + "/0", "flights " + before.Incarnation + "/1", "flights " + now.Incarnation + "/0"}
		slices.Sort(want)
		if !slices.Equal(sources, want) {
			t.Errorf("sources %q, want %q", sources, want)
		}
	})
}

func TestCosmosDeletesAndExpires(t *testing.T) {
	for _, c := range []struct{ keys, body, want string }{
		{"operation: delete", `{"id":"a","key":"k","n":1}`, `3 a [k] `},
		{"operation: delete", `{"id":7,"key":"k"}`, `3 7 [k] `},
		{"delete_when: {body.op: d}", `{"id":"a","key":"k","op":"d"}`, `3 a [k] `},
		{"delete_when: {body.op: d}", `{"id":"a","key":"k","op":"u"}`, `0 a [k] {"id":"a","key":"k","op":"u"}`},
		{"delete_when: {body.op: d}", `{"id":"a","key":"k"}`, `0 a [k] {"id":"a","key":"k"}`},
		{"ttl: 1h", `{"id":"a","key":"k"}`, `0 a [k] {"ttl":3600,"id":"a","key":"k"}`},
		{"ttl: body.lives", `{"id":"a","key":"k","lives":-1}`, `0 a [k] {"ttl":-1,"id":"a","key":"k","lives":-1}`},
		{"ttl: body.lives", `{"id":"a","key":"k"}`, `0 a [k] {"id":"a","key":"k"}`},
		{"ttl: body.lives", `{"id":"a","key":"k","lives":0}`, `ttl: body.lives: is 0: a document lives for 1 second at least, or -1: for ever`},
		{"ttl: body.lives", `{"id":"a","key":"k","lives":"soon"}`, `ttl: body.lives: "soon" where a whole number should be`},
		{"ttl: 1h", `{"id":"a","key":"k","ttl":5}`, `ttl: the body has another value in its property ttl`},
		{"without_key: write", `{"id":"a"}`, `0 a [{}] {"id":"a"}`},
		{"without_key: write", `{"id":"a","key":null}`, `0 a [<nil>] {"id":"a","key":null}`},
	} {
		p, err := parseCosmos("    conditional: true\n", "", "operation: create", "mode: point", "    mode: point\n    id:", "    "+c.keys+"\n    id:")
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		var got string
		docs, err := targetOf[*cosmosTarget](p).documents(t.Context(), &sluice.Event{Body: []byte(c.body)})
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%d %s %v %s", docs[0].Operation, docs[0].ID, docs[0].PartitionKey, docs[0].Body)
		}
		if got != c.want {
			t.Errorf("%s, %s\ngot  %s\nwant %s", c.keys, c.body, got, c.want)
		}
	}
	for keys, want := range map[string]string{
		"conditional: true\n    operation: delete":         "conditional goes without operation: delete and delete_when",
		"conditional: true\n    delete_when: {body.op: d}": "conditional goes without operation: delete and delete_when",
		"operation: delete\n    ttl: 1h":                   "ttl and delete_when are for documents that are written",
		"delete_when: gone":                                `delete_when: "gone": write one of tombstone`,
		"ttl: 0s":                                          `ttl: "0s": must be more than zero`,
		"ttl: lives":                                       `ttl: "lives": write `,
		"without_key: drop":                                `without_key: "drop": write one of deadletter, write`,
	} {
		_, err := parseCosmos("    conditional: true\n", "", "    operation: create\n", "", "    mode: point\n", "    "+keys+"\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", keys, err, want)
		}
	}
}

// A null value of Kafka has no body that the id could be in.
func TestCosmosTombstones(t *testing.T) {
	p, err := parseCosmos("    conditional: true\n", "", "operation: create", "delete_when: tombstone", "id: body.id", "id: key", "partition_key: body.key", "partition_key: {k: key}")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := targetOf[*cosmosTarget](p).documents(t.Context(), &sluice.Event{Key: "a"})
	if err != nil || docs[0].Operation != cosmos.Delete || docs[0].ID != "a" || fmt.Sprint(docs[0].PartitionKey) != "[a]" || docs[0].Body != nil {
		t.Errorf("%+v, %v", docs, err)
	}
	docs, err = targetOf[*cosmosTarget](p).documents(t.Context(), &sluice.Event{Key: "a", Body: []byte(`{}`)})
	if err != nil || docs[0].Operation != cosmos.Upsert || string(docs[0].Body) != `{"k":"a"}` {
		t.Errorf("%+v, %v", docs, err)
	}
}
