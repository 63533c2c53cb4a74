package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sluicetest"
)

// soundRoutes is a file with routes to tables without problems.
const soundRoutes = `source:
  eventhub:
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: flights
partitions: all
database: ${DATABASE_URL}
routes:
  - only: {properties.type: [FlightUpdate, FlightPlan]}
    target:
      insert:
        table: flights
        create: true
        columns: {hub_partition: partition, sequence_number: sequence, delay: {from: body.delay, type: integer}}
  - only: {properties.type: GateChange}
    target:
      insert:
        table: gates
        create: true
        columns: {p: partition, n: sequence, gate: {from: body.gate, type: text}}
otherwise: deadletter
`

func editRoutes(t *testing.T, edits ...string) string {
	t.Helper()
	return replaced(t, soundRoutes, edits)
}

// ofTypes makes events with the property type, from TYPE BODY.
func ofTypes(texts ...string) []*sluice.Event {
	events := sluicetest.Bodies(texts...)
	for i, text := range texts {
		name, body, _ := strings.Cut(text, " ")
		events[i].Properties, events[i].Body = map[string]any{"type": name}, []byte(body)
	}
	return events
}

// openRoutes opens a file with routes.
func openRoutes(t *testing.T, file string, env ...string) (*Pipeline, *Parts) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), environment(env...))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parts.Close(context.Background()); err != nil { // that of t has ended
			t.Error(err)
		}
	})
	return p, parts
}

// Events of several types become rows of several tables. An event that one table refuses takes
// nothing of the others with it.
func (e *testedEngine) testRoutes(t *testing.T, address string, db *sql.DB) {
	mustExec(t, db, e.flights(", delay int CHECK (delay < 100)"))
	p, parts := openRoutes(t, soundRoutes, "DATABASE_URL="+address)
	filtered := consume(t, p, parts, ofTypes(
		`FlightUpdate {"delay":1}`, `FlightPlan {"delay":2}`, `GateChange {"gate":"A1"}`, `GateChange {"gate":7}`,
		`FlightUpdate {"delay":100}`, `GateChange {"gate":[]}`, `FlightUpdate {"delay":3}`, `Heartbeat {}`, `GateChange {"gate":"B2"}`, `FlightUpdate {"delay":4}`)...)
	if got, want := query(t, db, "SELECT hub_partition, sequence_number, delay FROM flights ORDER BY delay"), "0 0 1\n1 0 2\n0 3 3\n1 4 4"; got != want {
		t.Errorf("rows of flights\n%s\nwant\n%s", got, want)
	}
	if got, want := query(t, db, "SELECT p, n, gate FROM gates ORDER BY gate"), "1 1 7\n0 1 A1\n0 4 B2"; got != want {
		t.Errorf("rows of gates\n%s\nwant\n%s", got, want)
	}
	list, err := parts.DeadLetters.List(t.Context(), p.Group, sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var dead []string
	for _, d := range list {
		dead = append(dead, fmt.Sprintf("%s %d %.14s", d.Event.Partition, d.Event.Sequence, d.Error))
	}
	slices.Sort(dead)
	if want := []string{"0 2 insert into fl", "1 2 column gate: b", "1 3 no route takes"}; !slices.Equal(dead, want) || filtered != 0 {
		t.Errorf("dead letters %q, want %q; %d filtered", dead, want, filtered)
	}
	lineage, err := p.Lineage()
	if err != nil || len(lineage) != 2 || lineage[1].Sequence != p.storage.database.(sqlDatabase).dialect().quote("n") {
		t.Errorf("lineage %v, %v", lineage, err)
	}
}

// TestRoutesOfOneTable: statements on one table run in the log's order.
func TestRoutesOfOneTable(t *testing.T) {
	address, db := sqliteFile(t)
	mustExec(t, db, "CREATE TABLE open (id TEXT PRIMARY KEY)")
	file := soundRoutes[:strings.Index(soundRoutes, "routes:")] + `only: {properties.type: {not: Heartbeat}}
routes:
  - only: {properties.type: Closed}
    target: {statement: {sql: 'DELETE FROM open WHERE id = :id', parameters: {id: body.id}}}
  - only: {properties.type: Opened}
    target: {statement: {sql: 'INSERT INTO open VALUES (:id)', parameters: {id: body.id}}}
otherwise: ignore
`
	p, parts := openRoutes(t, file, "DATABASE_URL="+address)
	filtered := consume(t, p, parts, ofTypes(
		`Opened {"id":"a"}`, `Opened {"id":"b"}`, `Closed {"id":"a"}`, `Heartbeat {}`, `Opened {"id":"a"}`, `Closed {"id":"b"}`, `Closed {"id":"a"}`, `Other {}`,
		`Opened {"id":"a"}`, `Heartbeat {}`)...)
	if got := query(t, db, "SELECT id FROM open"); got != "a" || filtered != 3 || len(deadLetters(t, p, parts)) != 0 {
		t.Errorf("rows %q, %d filtered, dead letters %q", got, filtered, deadLetters(t, p, parts))
	}
}

// TestDivide: events of one route go to its target together where no route can affect another, in
// the order of the routes. Elsewhere the log's order stays.
func TestDivide(t *testing.T) {
	events := ofTypes("GateChange {}", "FlightPlan {}", "GateChange {}", "FlightUpdate {}")
	for _, c := range []struct {
		edits []string
		want  string
	}{
		{nil, "[0:[1 3] 1:[0 2]]"},
		{[]string{"table: gates", "table: Flights"}, "[1:[0] 0:[1] 1:[2] 0:[3]]"}, // one table, in most databases
		{[]string{"        table: gates\n        create: true\n        columns: {p: partition, n: sequence, gate: {from: body.gate, type: text}}\n", "",
			"      insert:\notherwise", "      statement: {sql: 'INSERT INTO flights VALUES (:n)', parameters: {n: sequence}}\notherwise"}, "[1:[0] 0:[1] 1:[2] 0:[3]]"},
	} {
		p, err := Parse("p.yaml", []byte(editRoutes(t, c.edits...)), environment())
		if err != nil {
			t.Fatal(err)
		}
		parts, err := p.routing.divide(events, p.routing.tablesApart())
		var got []string
		for _, part := range parts {
			got = append(got, fmt.Sprint(part.target, ":", part.indices))
		}
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v; want %s", c.edits, got, err, c.want)
		}
	}
}

// TestRoutesOutside: events of several types go to endpoints and hubs.
func TestRoutesOutside(t *testing.T) {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}, {Name: "gates", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	var mu sync.Mutex
	var posted []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range []string{"1", "2", "3"} {
			if strings.Contains(string(body), `{"delay":`+n+`}`) {
				posted = append(posted, n)
			}
		}
	}))
	t.Cleanup(receiver.Close)
	file := soundRoutes[:strings.Index(soundRoutes, "database:")] + `leases: {sql: "${DATABASE_URL}"}
order: partition
routes:
  - only: {properties.type: GateChange}
    target: {eventhub: {hub: gates}}
  - only: {body.delay: [1, 2]}
    target:
      http: {url: "${TARGET_URL}", format: json}
otherwise: ignore
`
	address, _ := sqliteFile(t)
	p, parts := openRoutes(t, file, "DATABASE_URL="+address, "EVENTHUB_CONNECTION_STRING="+srv.ConnectionString(), "TARGET_URL="+receiver.URL)
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	events := ofTypes(`FlightUpdate {"delay":1}`, `GateChange no JSON`, `FlightUpdate {"delay":3}`, `FlightUpdate {"delay":2}`, `FlightUpdate no JSON`, `GateChange {}`)
	flights := sluicetest.NewHub(p.Group, 1)
	flights.Append("0", events...)
	filtered := 0
	c, err := parts.Consumer(t.Context(), &Options{Source: flights, Observer: driver.ObserverFunc(func(o driver.Observation) {
		mu.Lock()
		defer mu.Unlock()
		filtered += o.Filtered
	})})
	if err != nil {
		t.Fatal(err)
	}
	runConsumerUntil(t, c, func() bool {
		at, err := parts.Checkpoints.Read(t.Context(), p.Group)
		return err == nil && len(at) == 1 && at[0].Position.Sequence == int64(len(events)-1)
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(posted, []string{"1", "2"}) || filtered != 1 {
		t.Errorf("posted %q, %d filtered", posted, filtered)
	}
	if dead := deadLetters(t, p, parts); len(dead) != 1 || !strings.Contains(dead[0], "route 2: body: not JSON") {
		t.Errorf("dead letters %q", dead)
	}
	gates, err := p.routing.routes[0].target.(*messageTarget).destination.(*hub).source("")
	if err != nil {
		t.Fatal(err)
	}
	defer gates.Close(t.Context())
	if at, err := gates.Seek(t.Context(), "0", sluice.Latest(), 0); err != nil || at.Sequence != 1 {
		t.Errorf("the hub ends at %v, %v", at, err)
	}
}

func TestRoutesErrors(t *testing.T) {
	outside := func(routes string) string {
		return soundRoutes[:strings.Index(soundRoutes, "database:")] + "leases: {sql: sqlite:x.db}\nrate: {ru: 400}\nroutes:\n" + routes
	}
	const toHub, toTable = "  - target: {eventhub: {hub: clean}}\n", "  - only: {key: x}\n    target: {insert: {table: t, columns: {n: sequence}}}\n"
	const toCosmos = "  - only: {key: k}\n    target: {cosmos: {endpoint: https://h, credential: default, database: d, container: c, id: body.id, partition_key: body.id}}\n"
	for _, c := range []struct{ file, want string }{
		{soundRoutes[:strings.Index(soundRoutes, "routes:")], "p.yaml:1:1: target: is missing"},
		{editRoutes(t, "otherwise: deadletter", "target: {insert: {table: x, columns: {n: sequence}}}"), "p.yaml:7:1: routes: goes without target, line 20: write the target into a route"},
		{edit(t, "partitions: all", "partitions: all\notherwise: ignore"), "p.yaml:9:1: otherwise: goes with routes"},
		{editRoutes(t, "otherwise: deadletter", "otherwise: drop"), `p.yaml:20:1: otherwise: "drop": write one of deadletter, ignore`},
		{soundRoutes[:strings.Index(soundRoutes, "  - only")], "p.yaml:7:1: routes: is empty: write a list"},
		{editRoutes(t, "  - only: {properties.type: GateChange}\n    target:", "  - target:"), "p.yaml:19:1: otherwise: the last route takes every event: remove one of them"},
		{editRoutes(t, "  - only: {properties.type: [FlightUpdate, FlightPlan]}\n    target:", "  - target:"), "p.yaml:8:5: routes[0]: takes every event, so that the routes after it get none: give it the key only, or write it last"},
		{editRoutes(t, "  - only: {properties.type: GateChange}\n    target:", "  - only: {properties.type: GateChange}\n    targets:"), "p.yaml:15:5: routes[1].targets: unknown key, did you mean target?"},
		{editRoutes(t, "table: gates", "table: sluice_gates"), `p.yaml:17:9: routes[1].target.insert.table: "sluice_gates": names that begin with sluice_ are reserved for Sluice's own tables`},
		{editRoutes(t, "properties.type: GateChange", "typ: GateChange"), `p.yaml:14:12: routes[1].only.typ: "typ": did you mean type?`},
		{outside(toCosmos + toTable + toHub), "p.yaml:12:5: routes[1].target: is in a database, and that of the first route outside a database: write all routes to one database, or all outside of it; a second pipeline with a consumer group of its own can do the rest"},
		{outside(toCosmos + toCosmos), "p.yaml:12:5: routes[1].target: rate.ru is for one container: write rate: {events: …}, or one route to Cosmos DB"},
		{strings.Replace(outside("  - target: {http: {url: https://h}}\n"), "rate: {ru: 400}", "retry_throttled: 2s", 1), "p.yaml:7:1: retry_throttled: is for a cosmos, eventhub, servicebus or kafka target"},
		{outside(toHub), "p.yaml:7:8: rate.ru: is for Cosmos DB only: write events"},
		{outside(strings.Replace(toHub, "clean", "flights", 1)), "p.yaml:9:14: routes[0].target.eventhub: hub flights is the source of the pipeline: events would circulate for ever"},
		{editRoutes(t, "database: ${DATABASE_URL}\n", ""), "p.yaml:1:1: database is missing: write sqlite:PATH, or a URL such as postgres://user:${PASSWORD}@host/database"},
		{editRoutes(t, "otherwise: deadletter", "memory: {group: {a: body.a, h: hour(body.t)}, figures: {n: count}}"), "p.yaml:7:1: routes: cannot be combined with memory, whose statistics go to one target"},
	} {
		_, err := Parse("p.yaml", []byte(c.file), environment())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// runConsumerUntil runs a consumer until something is so.
func runConsumerUntil(t *testing.T, c *sluice.Consumer, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("not so in time")
		}
	}
	if err := errors.Join(c.Stop(ctx), <-ended); err != nil {
		t.Error(err)
	}
}
