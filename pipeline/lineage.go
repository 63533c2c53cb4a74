package pipeline

import (
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/eventhub"
)

// SourceAs is the pipeline's hub, read by another consumer group. It connects
// when it is first used; the caller closes it.
func (p *Pipeline) SourceAs(consumerGroup string) (*eventhub.Source, error) {
	h := p.hub
	h.config.ConsumerGroup = consumerGroup
	source, err := h.source()
	return source, p.problem(p.places.source, err)
}

// Start is where a partition without a checkpoint is first read.
func (p *Pipeline) Start() sluice.Start { return p.config.Start }

// Lineage is where the rows of a pipeline say which event each is of.
type Lineage struct {
	SQLite              string // the database's path, or else
	Postgres            string // its URL, which may hold a password
	Table               string // quoted, as the next two are
	Partition, Sequence string // columns
}

// String gives the table. It is what is printed, whatever the verb: the rest
// holds secrets.
func (t Lineage) String() string { return t.Table }

// GoString is String.
func (t Lineage) GoString() string { return t.Table }

// Lineage tells where the pipeline's rows say which event each is of.
func (p *Pipeline) Lineage() (Lineage, error) {
	if p.Table == "" {
		return Lineage{}, p.problem(p.places.target, fmt.Errorf("no rows of a table of its own: an audit needs target.insert, with partition and sequence recorded with the row"))
	}
	t := Lineage{Table: quoteTable(p.Table)}
	switch db := p.database.(type) {
	case sqliteDatabase:
		t.SQLite = db.path
	case postgresDatabase:
		t.Postgres = db.url
	}
	for _, c := range p.target.mapping.columns {
		switch c.from.field {
		case fieldPartition:
			t.Partition = quoteName(c.name)
		case fieldSequence:
			t.Sequence = quoteName(c.name)
		}
	}
	for _, of := range []struct {
		field  field
		column string
	}{{fieldPartition, t.Partition}, {fieldSequence, t.Sequence}} {
		if of.column == "" {
			return Lineage{}, p.problem(p.places.target, fmt.Errorf("table %s: no column is mapped from %s: an audit needs partition and sequence recorded with the row", p.Table, of.field))
		}
	}
	return t, nil
}
