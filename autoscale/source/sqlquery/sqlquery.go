// Package sqlquery takes a metric from a database: one number that a query
// returns.
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

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Name is what errors call the query. Default: "query".
	Name string
}

// Source is a number in a database.
type Source struct {
	db    *sql.DB
	query string
	cfg   Config
}

var _ autoscale.Source = (*Source)(nil)

// New returns what a query says, over any driver of database/sql. It must
// return one row of one column that is a number: 0, not NULL, where there is
// nothing. The query is the user's, and so is its harmlessness: let it run as a
// user who may only read. The database is not closed.
func New(db *sql.DB, query string, cfg *Config) *Source {
	s := &Source{db: db, query: query}
	if cfg != nil {
		s.cfg = *cfg
	}
	s.cfg.Name = cmp.Or(s.cfg.Name, "query")
	return s
}

// What a query must not return.
var (
	errNoRow    = errors.New("it returned no row: write it so that it returns one with a number, as count(*) does")
	errRows     = errors.New("it returned more than one row: one is meant")
	errColumns  = errors.New("it returned more than one column: one is meant")
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

// number reads what drivers make of numbers: exact decimals come as text.
func number(value any) (float64, error) {
	switch v := value.(type) {
	case nil:
		return 0, errNull
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
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
		return 0, errNoNumber // not the text: it may be anything
	}
	return f, nil
}
