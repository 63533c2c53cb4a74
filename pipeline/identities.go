package pipeline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/webhook"
)

// identityQuery is a query for the events of a partition that the target has, which only an audit
// runs.
type identityQuery struct {
	database  sqlDatabase // nil: that of the pipeline
	statement statement
}

// identityParameters are the values that such a query may use.
var identityParameters = []string{"partition", "source", "namespace", "topic", "incarnation"}

// readIdentityQuery reads the key audit of a target. fallback is the database of the target, nil if
// the key must name one.
func readIdentityQuery(n strictyaml.Node, fallback *dialect) *identityQuery {
	q := &identityQuery{}
	var text string
	var at strictyaml.Node
	keys := strictyaml.Keys{"query": func(n strictyaml.Node) { at = n; n.Verbatim(&text) }}
	required := []string{"query"}
	if fallback == nil {
		keys["database"] = func(n strictyaml.Node) { q.database, _ = readSQLDatabase(n) }
		required = append(required, "database")
	}
	if !n.Object(keys, required...) || text == "" || fallback == nil && q.database == nil {
		return nil
	}
	if q.database != nil {
		fallback = q.database.dialect()
	}
	var err error
	if q.statement, err = parseQuery(text, fallback); err != nil {
		at.Fail("%w", err)
		return nil
	}
	return q
}

// parseQuery parses a query that returns the sequence numbers of a partition's events.
func parseQuery(text string, d *dialect) (statement, error) {
	s := sqlScanner{rest: text, dialect: d}
	if err := s.run(); err != nil {
		return statement{}, err
	}
	if s.verb != "select" {
		return statement{}, fmt.Errorf("begins with %q: write a SELECT", s.verb)
	}
	of := false
	for _, name := range s.names {
		if !slices.Contains(identityParameters, name) {
			return statement{}, fmt.Errorf(":%s: write :partition, :source, :namespace, :topic or :incarnation", name)
		}
		of = of || name == "partition" || name == "source"
	}
	if !of {
		return statement{}, errors.New("uses neither :partition nor :source: it must return the sequence numbers of one partition, such as SELECT sequence_number FROM flights WHERE hub_partition = :partition")
	}
	return statement{"SELECT * FROM (" + s.out.String() + "\n) AS events ORDER BY 1", s.names}, nil
}

// identities returns the query of the pipeline's target, nil if it has none.
func (p *Pipeline) identities() *identityQuery {
	switch t := p.target().(type) {
	case *statementTarget:
		return t.identities
	case *httpTarget:
		return t.identities
	}
	return nil
}

// HasIdentities reports whether the file has a query for the events that the target has.
func (p *Pipeline) HasIdentities() bool { return p.identities() != nil }

// Kind returns the key of the pipeline's target: insert, statement, cosmos, eventhub, kafka or
// http; for Service Bus queue or topic. With several routes it is insert if all go to tables, and
// else routes.
func (p *Pipeline) Kind() string {
	if p.routing.listed && p.Table == "" {
		return "routes"
	}
	return p.routing.routes[0].target.kind()
}

// Identities opens the database of the query and returns it, and a function that runs the query for
// a partition. It yields sequence numbers, ascending. The caller closes the database.
func (p *Pipeline) Identities() (*sql.DB, func(ctx context.Context, topic sluice.Topic, partition string) iter.Seq2[int64, error], error) {
	q := p.identities()
	from := q.database
	if from == nil {
		var ok bool
		if from, ok = p.storage.database.(sqlDatabase); !ok {
			return nil, nil, p.problem(p.places.target, errors.New("audit: the pipeline has no database"))
		}
	}
	db, err := from.reader()
	if err != nil {
		return nil, nil, p.problem(p.places.target, fmt.Errorf("audit: %w", err))
	}
	return db, func(ctx context.Context, topic sluice.Topic, partition string) iter.Seq2[int64, error] {
		return func(yield func(int64, error) bool) {
			if err := q.list(ctx, db, topic, partition, yield); err != nil {
				yield(0, p.problem(p.places.target, fmt.Errorf("audit.query: %w", err)))
			}
		}
	}, nil
}

func (q *identityQuery) list(ctx context.Context, db *sql.DB, topic sluice.Topic, partition string, yield func(int64, error) bool) error {
	values := map[string]string{
		"partition": partition, "source": webhook.SourceOf(topic, partition),
		"namespace": topic.Group.Namespace, "topic": topic.Group.Topic, "incarnation": topic.Incarnation,
	}
	args := make([]any, len(q.statement.names))
	for i, name := range q.statement.names {
		args[i] = values[name]
	}
	rows, err := db.QueryContext(ctx, q.statement.text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	switch {
	case err != nil:
		return err
	case len(columns) != 1:
		return fmt.Errorf("returns %d columns: it must return one, the sequence numbers", len(columns))
	}
	for rows.Next() {
		var value any
		if err := rows.Scan(&value); err != nil {
			return err
		}
		number, ok := value.(int64)
		if !ok {
			return fmt.Errorf("returns %.40s, which is no whole number for the database and would not be sorted as one: write CAST(… AS BIGINT), AS INTEGER in SQLite, AS SIGNED in MySQL", shownValue(value))
		}
		if !yield(number, nil) {
			return nil
		}
	}
	return rows.Err()
}

func shownValue(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []byte:
		return strconv.Quote(string(v))
	case nil:
		return "NULL"
	}
	return fmt.Sprint(v)
}
