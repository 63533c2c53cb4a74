package pipeline

import (
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
)

// SourceAs returns a source that reads the pipeline's log in another consumer
// group. It connects when it is first used. The caller closes it.
func (p *Pipeline) SourceAs(consumerGroup string) (Source, error) {
	source, err := p.source.open(consumerGroup)
	return source, p.problem(p.places.source, err)
}

// Start returns the start position of a partition without a checkpoint.
func (p *Pipeline) Start() sluice.Start { return p.config.Start }

// Lineage names the columns in which the rows of a pipeline record their events.
type Lineage struct {
	Database            string // for [OpenReader]; it may contain a password
	Table               string // quoted for SQL, like the columns
	Partition, Sequence string // the columns with an event's partition and sequence number
}

// String returns the table. Every fmt verb prints only this, because the other
// fields may contain secrets.
func (t Lineage) String() string { return t.Table }

// GoString returns the table.
func (t Lineage) GoString() string { return t.Table }

// Lineage returns where the pipeline's rows record their events, for each of its tables. It is an
// error if a target is no table, or has no columns for partition and sequence.
func (p *Pipeline) Lineage() ([]Lineage, error) {
	var list []Lineage
	for _, t := range p.targets() {
		l, err := t.lineage()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list, func(o Lineage) bool { return o.Table == l.Table }) { // two routes may have one
			list = append(list, l)
		}
	}
	return list, nil
}

// lineage is [Pipeline.Lineage] of the only target.
func (p *Pipeline) lineage() (Lineage, error) {
	if p.Table == "" {
		return Lineage{}, p.problem(p.places.target, fmt.Errorf("no table of its own: an audit needs target.insert, with partition and sequence recorded with the row"))
	}
	d := p.target.dialect
	t := Lineage{Table: d.quoteTable(p.Table)}
	if db, ok := p.database.(sqlDatabase); ok {
		t.Database = db.address()
	}
	for _, c := range p.target.mapping.columns {
		switch c.from.field {
		case fieldPartition:
			t.Partition = d.quote(c.name)
		case fieldSequence:
			t.Sequence = d.quote(c.name)
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
