package move

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sluice-go/sluice/pipeline"
)

// Effects looks at the pipeline's table, which the old consumer may have written too.
type Effects struct {
	db     *sql.DB
	tables []pipeline.Lineage
	why    string // unknown
}

// NewEffects opens the pipeline's table. The caller closes it.
func NewEffects(p *pipeline.Pipeline) *Effects {
	tables, err := p.Lineage()
	if err == nil && len(tables) == 0 {
		err = fmt.Errorf("the pipeline has no table")
	}
	if err != nil {
		return &Effects{why: err.Error()}
	}
	if path, ok := strings.CutPrefix(tables[0].Database, "sqlite:"); ok {
		if _, err := os.Stat(strings.TrimPrefix(path, "//")); errors.Is(err, fs.ErrNotExist) {
			return &Effects{why: "the database does not exist yet"}
		}
	}
	db, err := pipeline.OpenReader(tables[0].Database)
	if err != nil {
		return &Effects{why: err.Error()}
	}
	return &Effects{db: db, tables: tables}
}

// Close closes the database.
func (e *Effects) Close() {
	if e.db != nil {
		_ = e.db.Close()
	}
}

// look fills in what the tables have around a seam. That it is unknown is no error.
func (e *Effects) look(ctx context.Context, s *Seam) {
	if e == nil {
		return
	}
	around := &Sides{Why: e.why}
	s.Effects = around
	for _, t := range e.tables {
		if err := e.addTable(ctx, t, s, around); err != nil {
			*around = Sides{Why: strings.ReplaceAll(err.Error(), "\n", " ")}
			return
		}
	}
}

// addTable adds what one table has. The partition is a number in all logs, so it needs no quoting
// rules of the database, and it is compared as a text or as a number, whatever the column is.
func (e *Effects) addTable(ctx context.Context, t pipeline.Lineage, s *Seam, a *Sides) error {
	if strings.Trim(s.Partition, "0123456789") != "" {
		return fmt.Errorf("partition %q is no number", s.Partition)
	}
	for _, side := range []struct {
		pick, comparison string
		rows             *int64
		event            **int64
		nearer           func(a, b int64) int64
	}{
		{"max", "<", &a.Earlier, &a.Last, func(a, b int64) int64 { return max(a, b) }},
		{"min", ">=", &a.Later, &a.First, func(a, b int64) int64 { return min(a, b) }},
	} {
		query := fmt.Sprintf("SELECT count(*), %s(%s) FROM %s WHERE %s = '%s' AND %s %s %d",
			side.pick, t.Sequence, t.Table, t.Partition, s.Partition, t.Sequence, side.comparison, s.Start)
		var rows int64
		var event sql.NullInt64
		if err := e.db.QueryRowContext(ctx, query).Scan(&rows, &event); err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
		if *side.rows += rows; !event.Valid {
			continue
		}
		if *side.event != nil {
			event.Int64 = side.nearer(event.Int64, **side.event)
		}
		*side.event = &event.Int64
	}
	return nil
}
