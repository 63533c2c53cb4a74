package pipeline

import (
	"errors"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// tableKey makes each event a change of the row with its key.
type tableKey struct {
	columns    []string
	onConflict driver.OnConflict
	version    string // the column, for newer

	deleteWhen filter // its zero value matches no event here
	tombstones bool   // null bodies of Kafka are deletes
	truncated  filter // the events that clear a source table
	truncates  truncation
}

// truncation is what happens when a source table was cleared.
type truncation string

const (
	rejectTruncates truncation = ""
	applyTruncates  truncation = "delete"
	skipTruncates   truncation = "skip"
)

var onConflicts = map[string]driver.OnConflict{"update": driver.Update, "skip": driver.Skip, "newer": driver.Newer}

// has reports whether a column is needed of a delete.
func (k *tableKey) has(column string) bool {
	return column == k.version || slices.Contains(k.columns, column)
}

// keyed is a write by the key, without its deletes.
func (k *tableKey) keyed() driver.Keyed {
	return driver.Keyed{Key: k.columns, OnConflict: k.onConflict, Version: k.version}
}

// errTruncated is why an event that clears its source table is rejected.
var errTruncated = errors.New("the source table was truncated: set insert.truncates: delete, which deletes all rows of this one, or skip")

// effect returns what an event does beside writing a row.
func (k *tableKey) effect(e *sluice.Event, raw bool) (deleted, cleared bool, err error) {
	if raw && e.Body == nil && k.tombstones {
		return true, false, nil
	}
	if k.truncated.given != nil {
		switch is, err := k.truncated.matches(e); {
		case err != nil:
			return false, false, err
		case is && k.truncates == rejectTruncates:
			return false, false, errTruncated
		case is:
			return false, true, nil
		}
	}
	if k.deleteWhen.given != nil {
		deleted, err = k.deleteWhen.matches(e)
	}
	return deleted, false, err
}

// keyNodes are the keys of insert that go with the key key.
type keyNodes struct {
	key, onConflict, version, deleteWhen, truncates *strictyaml.Node
}

// read reads the key, nil if there is none.
func (n *keyNodes) read(columns []column, r *reader) *tableKey {
	k := &tableKey{}
	n.readDeletes(k, r)
	word := "update"
	if n.onConflict != nil && n.onConflict.OneOf(&word, "update", "skip", "newer") {
		k.onConflict = onConflicts[word]
	}
	if n.key == nil {
		refuse("goes with key, the columns of the row's key", n.onConflict, n.version, n.deleteWhen, n.truncates)
		return nil
	}
	names := columnNames(columns)
	n.key.Texts(maxKeyColumns, &k.columns)
	for i, name := range k.columns {
		switch {
		case !slices.Contains(names, name):
			n.key.Fail("%s is not among the columns", name)
		case slices.Contains(k.columns[:i], name):
			n.key.Fail("has %s twice", name)
		}
	}
	n.readVersion(k, names)
	return k
}

// maxKeyColumns is what PostgreSQL and SQL Server have at most.
const maxKeyColumns = 32

func (n *keyNodes) readVersion(k *tableKey, names []string) {
	switch {
	case n.version == nil && k.onConflict == driver.Newer:
		n.onConflict.Fail("newer goes with version, the column that tells which of two changes is the newer one")
	case n.version == nil:
	case k.onConflict != driver.Newer:
		n.version.Fail("goes with on_conflict: newer")
	case n.version.Text(&k.version) && !slices.Contains(names, k.version):
		n.version.Fail("%s is not among the columns", k.version)
	case slices.Contains(k.columns, k.version):
		n.version.Fail("%s is part of the key", k.version)
	}
}

func (n *keyNodes) readDeletes(k *tableKey, r *reader) {
	changed := r.body.format.HasChanges()
	switch at := n.deleteWhen; {
	case at != nil && at.IsMapping():
		k.deleteWhen.read(*at)
	case at != nil:
		var word string
		switch k.tombstones = at.OneOf(&word, "tombstone"); {
		case k.tombstones && r.System != Kafka:
			at.Fail("tombstone goes with source.kafka: other logs have no null values: write which events delete, as in {body.op: delete}")
		case k.tombstones && changed:
			at.Fail("tombstone does not go with source.format.envelope: debezium, whose tombstones are left out: remove it, so that its deletes delete")
		}
	case changed && n.key != nil:
		k.deleteWhen = equals(n.key, "body.__deleted", "true")
	}
	switch {
	case n.truncates != nil && !changed:
		n.truncates.Fail("goes with source.format.envelope: debezium")
	case n.truncates != nil:
		var word string
		if n.truncates.OneOf(&word, string(applyTruncates), string(skipTruncates)) {
			k.truncates = truncation(word)
		}
	}
	if changed && n.key != nil {
		k.truncated = equals(n.key, "body.__op", "t")
	}
}

// equals is the filter of the events with a value in the body.
func equals(at *strictyaml.Node, path, value string) filter {
	from, err := parseOrigin(path)
	if err != nil {
		panic(err) // the path is a constant
	}
	f := filter{given: at, body: conditions{wanted: []wanted{{values: []string{value}}}}}
	f.body.mapping = newMapping("value", []column{{name: path, node: *at, origin: from, typ: typeText}})
	return f
}

// mappings are those of its filters.
func (k *tableKey) mappings() []*mapping {
	if k == nil {
		return nil
	}
	return slices.Concat(k.deleteWhen.mappings(), k.truncated.mappings())
}
