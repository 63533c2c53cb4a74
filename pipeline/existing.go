package pipeline

import (
	"context"
	"fmt"
	"slices"
)

// TableColumn is a column of a table that exists.
type TableColumn struct {
	Name, Kind string
	Required   bool     // it is NOT NULL and has no default
	Generated  bool     // it takes no values
	Types      []string // of a mapping, whose values it stores
}

// ExistingTable returns the columns of a table in a database, which is written as in a file; none
// if there is no such table. It changes nothing. Errors do not contain the password.
func ExistingTable(ctx context.Context, address, table string) ([]TableColumn, error) {
	db, err := parseDatabase(address)
	if err != nil {
		return nil, err
	}
	c, done, err := db.inspect(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if c == nil {
		return nil, nil
	}
	existing, err := c.columns(ctx, table)
	if err != nil {
		return nil, fmt.Errorf("inspect table %s: %w", table, err)
	}
	d := db.dialect()
	list := make([]TableColumn, len(existing))
	for i, e := range existing {
		list[i] = TableColumn{Name: e.name, Kind: e.kind, Required: e.required, Generated: e.generated}
		for _, name := range typeNames {
			if d.fits(ctx, c, columnType(name), e) == nil && !slices.Contains(list[i].Types, name) {
				list[i].Types = append(list[i].Types, name)
			}
		}
	}
	return list, nil
}

// CheckDatabase connects to the database of the pipeline and checks the tables that it writes to.
// It changes nothing.
func (p *Pipeline) CheckDatabase(ctx context.Context) error { return p.checkDatabase(ctx) }
