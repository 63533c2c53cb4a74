package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

const soundOutbox = `
source:
  outbox:
    database: ${ORDERS}
    create: true
    delete: {}
partitions: all
database: ${DATABASE_URL}
target:
  insert: {table: orders, create: true, columns: {number: {from: body.number, type: integer}, id: message_id}}
`

// parts opens a pipeline of a file.
func openFile(t *testing.T, file string, variables ...string) *Parts {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), environment(variables...))
	suite.NoError(t, "parse", err)
	parts, err := p.Open(t.Context())
	suite.NoError(t, "open", err)
	t.Cleanup(func() { parts.Close(context.WithoutCancel(t.Context())) })
	return parts
}

// runWhile runs a consumer until a condition holds.
func runWhile(t *testing.T, parts *Parts, opts *Options, what string, done func() bool) {
	t.Helper()
	c, err := parts.Consumer(t.Context(), opts)
	suite.NoError(t, "consumer", err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	suite.Eventually(t, what, done)
	cancel()
	<-ended
}

// A program inserts with SQL alone; rows that are done are deleted.
func TestOutbox(t *testing.T) {
	orders, source := sqliteFile(t)
	store, target := sqliteFile(t)
	variables := []string{"ORDERS=" + orders, "DATABASE_URL=" + store}
	parts := openFile(t, soundOutbox, variables...)
	if g := parts.Group; g != (sluice.Group{Namespace: "test.db", Topic: "sluice_outbox", Name: "sluice"}) {
		t.Errorf("group %v", g)
	}
	mustExec(t, source, `INSERT INTO sluice_outbox (body) VALUES ('{"number": 1}'), ('{"number": 2}')`)
	mustExec(t, source, `INSERT INTO sluice_outbox (message_id, event_key, properties, body) VALUES ('three', 'k', '{"a": 1, "b": 1.5, "c": "text"}', '{"number": 3}')`)
	rows := func() (n int, ids string) {
		suite.NoError(t, "count", target.QueryRow(`SELECT COUNT(DISTINCT number), COALESCE(GROUP_CONCAT(id), '') FROM orders`).Scan(&n, &ids))
		return n, ids
	}
	runWhile(t, parts, nil, "the rows have their effects", func() bool { n, _ := rows(); return n == 3 })
	again := openFile(t, soundOutbox, variables...)
	left := func() (n int) {
		suite.NoError(t, "count", source.QueryRow(`SELECT COUNT(*) FROM sluice_outbox`).Scan(&n))
		return n
	}
	runWhile(t, again, nil, "rows that are done are deleted", func() bool { return left() == 0 })
	mustExec(t, source, `INSERT INTO sluice_outbox (body) VALUES ('{"number": 4}')`)
	runWhile(t, again, nil, "a row after them has its effect", func() bool { n, _ := rows(); return n == 4 })
	var total int
	suite.NoError(t, "count", target.QueryRow(`SELECT COUNT(*) FROM orders`).Scan(&total))
	if _, ids := rows(); total != 4 {
		t.Errorf("%d rows, with the ids %s", total, ids)
	}
}

// Only a run creates the outbox, and only if the file says so.
func TestOutboxIsNotCreatedByAccident(t *testing.T) {
	orders, source := sqliteFile(t)
	store, _ := sqliteFile(t)
	p, err := Parse("p.yaml", []byte(soundOutbox), environment("ORDERS="+orders, "DATABASE_URL="+store))
	suite.NoError(t, "parse", err)
	const want = "p.yaml:3:3: source.outbox: outbox sluice_outbox: describe: refused: the outbox is missing: table sluice_outbox_partitions does not exist: write create: true (in Go call Create), or correct the name: "
	if err := p.Check(t.Context()); err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Errorf("checked: %v", err)
	}
	var tables int
	suite.NoError(t, "count", source.QueryRow(`SELECT COUNT(*) FROM sqlite_schema`).Scan(&tables))
	if tables != 0 {
		t.Errorf("a check made %d tables and indexes", tables)
	}
}

func TestOutboxErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"    database: ${ORDERS}\n", "", "p.yaml:3:3: source.outbox.database: is missing"},
		{"${ORDERS}", "postgres://me:hunter2@host/db", "p.yaml:4:5: source.outbox.database: holds a password: put it into an environment variable and write ${DATABASE_URL}, or postgres://user:${PASSWORD}@host/database"},
		{"${ORDERS}", "orders.db", "p.yaml:4:5: source.outbox.database: " + databaseForms},
		{"create: true", "table: a-b", `p.yaml:5:5: source.outbox.table: outbox: table "a-b": write letters, digits and _, at most 48, perhaps after a schema and a dot`},
		{"create: true", "partitions: 0", `p.yaml:5:5: source.outbox.partitions: "0": write a whole number from 1 to 256`},
		{"delete: {}", "delete: {keep: 1ms}", `p.yaml:6:14: source.outbox.delete.keep: "1ms": write a duration from 1s to 87600h0m0s`},
		{"    delete: {}\n", "    delete: {}\n  start: offset x\n", `p.yaml:7:3: source.start: "offset x": an offset of an outbox is a whole number, such as offset 4096`},
	} {
		_, err := Parse("p.yaml", []byte(editText(t, soundOutbox, c.old, c.new)), environment("ORDERS=sqlite:o.db"))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.new, err, c.want)
		}
	}
}

// A handler writes messages to an outbox in its own transaction. A stage relays them to a hub, and
// the next one writes rows to another database. All three are ended again and again: each event has
// one row in the end.
func TestOutboxChain(t *testing.T) {
	const events = 100
	srv, err := emulator.Start([]emulator.Hub{{Name: "orders", Partitions: 2}}, nil)
	suite.NoError(t, "start", err)
	t.Cleanup(func() { srv.Close() })
	first, _ := sqliteFile(t)
	relay, _ := sqliteFile(t)
	last, target := sqliteFile(t)
	f, err := ParseFile("p.yaml", []byte(`
eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}"}
partitions: all
stages:
  relay:
    source: {outbox: {database: "${ORDERS}", create: true, partitions: 2, delete: {}}}
    leases: {sql: "${RELAY}"}
    target: {eventhub: {hub: orders, key: key}}
  rows:
    source: {eventhub: {hub: orders}}
    database: ${DATABASE_URL}
    target: {insert: {table: orders, create: true, columns: {number: {from: body.number, type: integer}}}}
`), environment("EVENTHUB_CONNECTION_STRING="+srv.ConnectionString(), "ORDERS="+first, "RELAY="+relay, "DATABASE_URL="+last))
	suite.NoError(t, "parse", err)

	store, err := sqlstore.OpenSQLite(first[len("sqlite:"):], nil)
	suite.NoError(t, "open", err)
	t.Cleanup(func() { store.Close() })
	box, err := outbox.New(store.DB(), outbox.SQLite, nil)
	suite.NoError(t, "new", err)
	hub := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "raw", Name: "g"}, 1)
	for i := range events {
		hub.Append("0", &sluice.Event{Key: fmt.Sprint(i % 7), Body: fmt.Appendf(nil, `{"number": %d}`, i)})
	}
	handler := sluice.Each(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event) error {
		return box.Add(ctx, tx, outbox.Message{Key: e.Key, Body: e.Body})
	})

	seed := need.Seed(t)
	run := func(ctx context.Context, name string, begin func(driver.Observer) (*sluice.Consumer, func(), error)) {
		chance := rand.New(rand.NewPCG(seed, uint64(len(name))))
		for ctx.Err() == nil {
			ctx, kill := context.WithCancel(ctx)
			var left atomic.Int64
			left.Store(int64(2 + chance.IntN(6)))
			c, end, err := begin(driver.ObserverFunc(func(o driver.Observation) {
				if o.Kind == driver.KindCommitted && left.Add(-1) == 0 || o.Kind == driver.KindFetched && chanceOf(seed, o) {
					kill()
				}
			}))
			if err == nil {
				_ = c.Run(ctx)
			} else if ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
			kill()
			end()
			if err != nil {
				return
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 3)
	stage := func(p *Pipeline) func(driver.Observer) (*sluice.Consumer, func(), error) {
		return func(o driver.Observer) (*sluice.Consumer, func(), error) {
			parts, err := p.Open(ctx)
			if err != nil {
				return nil, func() {}, err
			}
			c, err := parts.Consumer(ctx, &Options{Owner: p.Name, Observer: o})
			return c, func() { parts.Close(context.Background()) }, err
		}
	}
	parts, err := f.Stages[0].Open(t.Context()) // which creates the outbox
	suite.NoError(t, "open", err)
	suite.NoError(t, "close", parts.Close(t.Context()))
	for name, begin := range map[string]func(driver.Observer) (*sluice.Consumer, func(), error){
		"relay": stage(f.Stages[0]), "rows": stage(f.Stages[1]),
		"handler": func(o driver.Observer) (*sluice.Consumer, func(), error) {
			c, err := sluice.New(hub, store.Leases(), sluice.Transactional(store, handler), &sluice.Config{Owner: "handler", Observer: o, MaxBatch: 10})
			return c, func() {}, err
		},
	} {
		go func() {
			defer func() { ended <- struct{}{} }()
			run(ctx, name, begin)
		}()
	}
	count := func() (rows, different int) {
		// The table is made by the last stage.
		_ = target.QueryRow(`SELECT COUNT(*), COUNT(DISTINCT number) FROM orders`).Scan(&rows, &different)
		return rows, different
	}
	suite.Eventually(t, "each event has its row", func() bool { _, n := count(); return n == events })
	cancel()
	for range 3 {
		<-ended
	}
	if rows, different := count(); rows != events || different != events {
		t.Errorf("%d rows for %d of %d events", rows, different, events)
	}
}

// chanceOf decides at random, by the event, whether a stage is ended after it was read.
func chanceOf(seed uint64, o driver.Observation) bool {
	return rand.New(rand.NewPCG(seed, uint64(o.Epoch))).IntN(8) == 0
}
