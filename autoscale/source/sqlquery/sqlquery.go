// Package sqlquery reads a metric from a database: the number that a query returns.
package sqlquery

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/autoscale"
)

// Config holds the options. The zero value, like nil, takes every default.
type Config struct {
	// Name is the name of the query in errors. Default: "query".
	Name string
}

// Source reads a number from a database.
type Source struct {
	db    *sql.DB
	query string
	cfg   Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns the result of a query as a source, with any driver of database/sql. The
// query must return one row with one column, a number; 0, not NULL, if there is
// nothing. It is run as it is: use a database user that may only read. New does not
// take ownership of db.
func New(db *sql.DB, query string, cfg *Config) *Source {
	s := &Source{db: db, query: query}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Name = cmp.Or(s.cfg.Name, "query")
	return s
}

// Results that are not a metric.
var (
	errNoRow    = errors.New("it returned no row: it must return one row with a number, as count(*) does")
	errRows     = errors.New("it returned more than one row: it must return one")
	errColumns  = errors.New("it returned more than one column: it must return one")
	errNull     = errors.New("it returned NULL: write coalesce(…, 0) if that means zero")
	errNoNumber = errors.New("it returned something that is not a number")
)

// Read implements [autoscale.Source].
func (s *Source) Read(ctx context.Context) (autoscale.Reading, error) {
	value, err := s.ask(ctx)
	if err != nil {
		return autoscale.Reading{}, fmt.Errorf("%s: %w", s.cfg.Name, err)
	}
	return autoscale.Reading{Value: value}, nil
}

func (s *Source) ask(ctx context.Context) (float64, error) {
	rows, err := s.db.QueryContext(ctx, s.query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	switch {
	case err != nil:
		return 0, err
	case len(columns) != 1:
		return 0, errColumns
	case !rows.Next():
		return 0, cmp.Or(rows.Err(), errNoRow)
	}
	var value any
	if err := rows.Scan(&value); err != nil {
		return 0, err
	}
	if rows.Next() {
		return 0, errRows
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	return number(value)
}

// number converts a driver's value: exact decimals come as text.
func number(value any) (float64, error) {
	switch v := value.(type) {
	case nil:
		return 0, errNull
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case float64:
		return v, nil
	case float32:
		return float64(v), nil
	case []byte:
		return parse(string(v))
	case string:
		return parse(v)
	}
	return 0, errNoNumber
}

func parse(text string) (float64, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, errNoNumber // without the text, which may be anything
	}
	return f, nil
}
