package pipeline

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/sqlstore"
)

// target is what a pipeline, or a route, writes events to.
type target interface {
	// kind is as in [Pipeline.Kind].
	kind() string
	// mappings are those that its records are made with, perhaps none.
	mappings() []*mapping
	// check connects to the target and changes nothing. A transactionalTarget asks the catalog.
	check(ctx context.Context, c catalog) error
	// outlet opens the target, which parts closes. A transactionalTarget has no outlet: it is
	// checked, and a missing table created if the file allows it.
	outlet(ctx context.Context, parts *Parts, to telemetry) (outlet, error)
}

// transactionalTarget is a target in the database of the checkpoints. Its handlers write a batch in
// the transaction that moves the checkpoint.
type transactionalTarget interface {
	target
	postgresHandler() sluice.Handler[pgx.Tx]
	sqlHandler() sluice.Handler[*sqlstore.Tx]
}

func transactional(t target) bool {
	_, ok := t.(transactionalTarget)
	return ok
}

// whereabouts says where a target is, for errors.
func whereabouts(t target) string {
	if transactional(t) {
		return "in a database"
	}
	return "outside a database"
}

// readTarget reads a target and returns it, even if it is invalid. Its key only, which targets of
// messages have, goes into the filter.
func (r *reader) readTarget(n strictyaml.Node, only *filter) target {
	rows := rowTarget{dialect: &postgresDialect} // if the database is invalid, so that the rest is checked too
	if db, ok := r.storage.database.(sqlDatabase); ok {
		rows.dialect = db.dialect()
	}
	var t target = &tableTarget{rowTarget: rows}
	read := func(other target) {
		if transactional(t) { // of several, which is an error, one outside the database counts
			t = other
		}
	}
	ok := n.Object(strictyaml.Keys{
		"insert":     func(n strictyaml.Node) { read(r.readTable(n, rows)) },
		"statement":  func(n strictyaml.Node) { read(readStatement(n, rows)) },
		"cosmos":     func(n strictyaml.Node) { read(readCosmos(n, r.atLeastOnce.ru)) },
		"eventhub":   func(n strictyaml.Node) { read(r.readEventHubTarget(n, only)) },
		"servicebus": func(n strictyaml.Node) { read(r.readServiceBusTarget(n, only)) },
		"kafka":      func(n strictyaml.Node) { read(r.readKafkaTarget(n, only)) },
		"http":       func(n strictyaml.Node) { read(readHTTPTarget(n)) },
	})
	if ok {
		n.ExactlyOne("insert", "statement", "cosmos", "eventhub", "servicebus", "kafka", "http")
	}
	return t
}

// rowTarget is what a table and a statement have in common: each event becomes a row of values.
type rowTarget struct {
	dialect *dialect
	mapping *mapping
	guards  guards // of the columns, as they were at the start
}

func (t *rowTarget) mappings() []*mapping { return []*mapping{t.mapping} }

// rows maps events to rows of what the driver of sqlstore takes.
func (t *rowTarget) rows(events []*sluice.Event, g guards) ([][]any, error) {
	rows, err := t.mapping.rows(events, g)
	if argument := t.dialect.argument; argument != nil {
		for _, row := range rows {
			for i := range row {
				row[i] = argument(t.mapping.columns[i].typ, row[i])
			}
		}
	}
	return rows, err
}
