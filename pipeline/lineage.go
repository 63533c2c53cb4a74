package pipeline

import (
	"errors"
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
	Topic               string // the column with its topic; empty: all rows are of one topic
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
	for _, r := range p.routing.routes {
		l, err := lineageOf(r.target)
		if err == nil && p.amongTopics && l.Topic == "" {
			err = fmt.Errorf("table %s has rows of several %ss, and no column is mapped from topic: an audit needs one", l.Table, p.System.Noun())
		}
		if err != nil {
			return nil, p.problem(r.place, err)
		}
		if db, ok := p.storage.database.(sqlDatabase); ok {
			l.Database = db.address()
		}
		if !slices.ContainsFunc(list, func(o Lineage) bool { return o.Table == l.Table }) { // two routes may have one
			list = append(list, l)
		}
	}
	return list, nil
}

// lineageOf is [Pipeline.Lineage] of one target, without the database.
func lineageOf(to target) (Lineage, error) {
	t, ok := to.(*tableTarget)
	if !ok {
		return Lineage{}, errors.New("no table of its own: an audit needs target.insert, with partition and sequence recorded with the row")
	}
	switch {
	case t.key != nil:
		return Lineage{}, fmt.Errorf("table %s: its rows are changed by key and do not record all events: an audit needs a target whose events add rows", t.table)
	case t.mapping.array != nil:
		return Lineage{}, fmt.Errorf("table %s: an event has several rows, or none: an audit needs a target with one row for each event", t.table)
	}
	columns := map[field]string{}
	for _, c := range t.mapping.columns {
		columns[c.origin.field] = t.dialect.quote(c.name)
	}
	for _, f := range []field{fieldPartition, fieldSequence} {
		if columns[f] == "" {
			return Lineage{}, fmt.Errorf("table %s: no column is mapped from %s: an audit needs partition and sequence recorded with the row", t.table, f)
		}
	}
	return Lineage{Table: t.dialect.quoteTable(t.table), Partition: columns[fieldPartition], Sequence: columns[fieldSequence], Topic: columns[fieldTopic]}, nil
}
