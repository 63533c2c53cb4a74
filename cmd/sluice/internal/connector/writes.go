package connector

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// writes is what becomes of a record in the database.
type writes struct {
	columns        []newfile.Column
	key            []string
	update         bool   // only rows that are there, by a statement
	create, evolve bool   // the table
	deleteWhen     string // as a file has it; empty: the default
	only           string // as a file has it; empty: all events
	truncates      string
	batch          int
	copies         string // the topic of copies of dead letters
}

// table names the table of a topic.
func (t *translator) table(s *stage, key, format string, mapping []string) {
	topic := s.topic
	for _, pair := range mapping {
		if from, to, ok := strings.Cut(pair, ":"); ok && from == topic {
			s.table = t.inSchema(to)
			t.done("topics.to.tables.mapping", "the table of %s", named(topic))
			return
		}
	}
	name := "${TABLE}"
	if topic != "${TOPIC}" {
		name = t.value.renamed(topic)
	}
	parts := strings.Split(name, ".")
	if format == "" {
		format = "${topic}"
	}
	if t.kind == debezium {
		name = strings.ReplaceAll(name, ".", "_")
	}
	table := strings.NewReplacer("${topic}", name, `"`, "", "`", "").Replace(format)
	if strings.Contains(table, "${source.") {
		last, before := parts[len(parts)-1], parts[max(len(parts)-2, 0)]
		table = strings.NewReplacer("${source.table}", last, "${source.schema}", before, "${source.db}", before).Replace(table)
		t.different(key, "the names in the event's source are taken from the topic %s: %s", named(topic), named(table))
	}
	if t.is("table.name.normalize") && topic != "${TOPIC}" {
		table = notInTable.ReplaceAllString(table, "_")
		t.done("table.name.normalize", "the table's name")
	}
	if parts := strings.Split(table, "."); len(parts) > 2 {
		table = strings.Join(parts[len(parts)-2:], ".")
		t.different(key, "%s has more than a schema and a name: the table is %s", named(strings.Join(parts, ".")), named(table))
	}
	if topic != "${TOPIC}" {
		table = variables(t.db.name(table))
	}
	s.table = t.inSchema(table)
	t.done(key, "table %s", named(s.table))
}

var notInTable = regexp.MustCompile(`[^A-Za-z0-9_]`)

func (t *translator) inSchema(table string) string {
	if t.db.schema != "" && !strings.Contains(table, ".") {
		return t.db.schema + "." + table
	}
	return table
}

// readErrors translates what becomes of records that fail.
func (t *translator) readErrors() error {
	tolerance := t.take("errors.tolerance")
	topic := t.take("errors.deadletterqueue.topic.name")
	switch {
	case topic != "":
		t.done("errors.deadletterqueue.topic.name", "dead_letters.copy_to: the database has each dead letter, the topic a copy")
	case among(tolerance, "all"):
		t.different("errors.tolerance", "all: what the connector drops becomes a dead letter in the database")
	default:
		t.different("errors.tolerance", "none: where the connector stops at a bad record, it becomes a dead letter in the database, and the others go on")
	}
	return nil
}

// readWrites translates what is written.
func (t *translator) readWrites() (*writes, error) {
	w := &writes{copies: t.values["errors.deadletterqueue.topic.name"]}
	t.readTable(w)
	mode := strings.ToLower(cmp.Or(t.take("insert.mode"), "insert"))
	deletes := t.is("delete.enabled")
	keys := t.keyColumns()
	switch mode {
	case "insert", "multi":
		if deletes && len(keys) > 0 {
			w.key = names(keys)
			t.different("insert.mode", "insert with delete.enabled: a record with a key that exists updates its row, where the connector fails")
			break
		}
		t.done("insert.mode", "insert: a row for each event")
		if len(keys) > 0 {
			t.different("insert.mode", "a row with a key that exists is a dead letter, where the connector stops; create makes the table without the primary key")
		}
	case "upsert", "update":
		if len(keys) == 0 {
			t.todo("insert.mode", "%s needs the columns of the key, which the configuration does not name: write key, here id", mode)
			keys = []newfile.Column{t.value.field("id")}
			keys[0].Required = true
		}
		w.key = names(keys)
		w.update = mode == "update"
		if !w.update {
			t.done("insert.mode", "upsert: key and on_conflict: update")
		}
	default:
		t.todo("insert.mode", "%s is not known", named(mode))
	}
	t.columns(w, keys)
	t.deletions(w, deletes, keys)
	if w.update {
		t.done("insert.mode", "update: a statement, which changes a row that is there and nothing else")
		if deletes {
			t.todo("delete.enabled", "update with deletes: add a route with a statement that deletes")
		}
		if w.create || w.evolve {
			t.different(t.debeziumOr("schema.evolution", "auto.create"), "a statement creates no table")
		}
	}
	return w, nil
}

// readTable translates how the table is made, and what else holds for all columns.
func (t *translator) readTable(w *writes) {
	evolution := t.take("schema.evolution")
	if t.kind == debezium {
		w.create = among(evolution, "basic")
		w.evolve = w.create
		if w.create {
			t.done("schema.evolution", "create and evolve")
		}
	} else {
		w.create, w.evolve = t.is("auto.create"), t.is("auto.evolve")
		if w.create {
			t.done("auto.create", "create")
		}
		if w.evolve {
			t.done("auto.evolve", "evolve")
		}
	}
	if w.evolve {
		t.different(t.debeziumOr("schema.evolution", "auto.evolve"), "a field that is new in the records is written once its column is in the file")
	}
	if size, err := strconv.Atoi(t.take("batch.size")); err == nil && size > 0 && size <= 100_000 {
		w.batch = size
		t.done("batch.size", "batch")
	}
	key, zone := t.first("db.timezone", "use.time.zone", "database.time_zone", "date.timezone")
	if zone != "" && !among(zone, "UTC", "Z", "GMT", "DB_TIMEZONE") {
		t.todo(key, "%s: the connector writes times in this zone into columns without one, Sluice in UTC: use columns with a zone", named(zone))
	} else if zone != "" {
		t.done(key, "times without a zone are in UTC")
	}
	for _, key := range []string{"replace.null.with.default", "timestamp.precision.mode", "timestamp.fields.list", "dialect.sqlserver.identity.insert"} {
		if v := t.take(key); v != "" && !among(v, "false", "microseconds") {
			t.todo(key, "%s is not translated: it changes values", named(v))
		}
	}
}

// keyColumns are the columns of pk.mode, empty if the configuration does not name them.
func (t *translator) keyColumns() []newfile.Column {
	at, mode := t.first(t.debeziumOr("primary.key.mode", "pk.mode"), "pk.mode", "primary.key.mode")
	atFields, text := t.first(t.debeziumOr("primary.key.fields", "pk.fields"), "pk.fields", "primary.key.fields")
	fields := list(text)
	var columns []newfile.Column
	switch strings.ToLower(cmp.Or(mode, "none")) {
	case "none":
		return nil
	case "kafka":
		columns = coordinates(fields)
	case "record_value":
		for _, name := range fields {
			columns = append(columns, t.value.field(name))
		}
	case "record_header":
		for _, name := range fields {
			columns = append(columns, newfile.Column{Name: name, From: "properties." + name, Type: "text"})
		}
	case "record_key":
		columns = t.recordKey(at, fields)
	default:
		t.todo(at, "%s is not known", named(mode))
		return nil
	}
	if len(columns) == 0 {
		return nil
	}
	for i := range columns {
		columns[i].Required = true
	}
	t.done(at, "%s", named(strings.ToLower(mode)))
	t.done(atFields, "%s", named(strings.Join(names(columns), ", ")))
	return columns
}

// coordinates are the columns of pk.mode kafka.
func coordinates(fields []string) []newfile.Column {
	if len(fields) != 3 {
		fields = []string{"__connect_topic", "__connect_partition", "__connect_offset"}
	}
	return []newfile.Column{
		{Name: fields[0], From: topicPlace, Type: "text"}, {Name: fields[1], From: "partition", Type: "integer"}, {Name: fields[2], From: "sequence", Type: "bigint"},
	}
}

// recordKey are the columns of a key.
func (t *translator) recordKey(at string, fields []string) []newfile.Column {
	k := t.value.key
	switch {
	case len(fields) == 0 && len(k.fields) > 0:
		return slices.Clone(k.fields)
	case len(fields) == 1 && k.one != "":
		return []newfile.Column{{Name: fields[0], From: k.one, Type: t.keyType(k.one)}}
	case len(fields) == 1 && len(k.fields) == 0 && t.values["key.converter"] == stringConverter && !t.value.changes:
		return []newfile.Column{{Name: fields[0], From: "key", Type: "text"}}
	}
	var columns []newfile.Column
	for _, name := range fields {
		f := t.keyField(name)
		f.Name = name
		columns = append(columns, f)
	}
	if len(columns) > 0 && !t.value.changes && len(k.fields) == 0 {
		t.different(at, "record_key: keys are not decoded, so the field of the value with the same name is used; an event without it becomes a dead letter")
	}
	return columns
}

// keyType is the type of a key that is one value: a text, unless it is a field of the value.
func (t *translator) keyType(from string) string {
	if from == "key" {
		return "text"
	}
	return ""
}

// columns are all columns: those of the key, and those of the value.
func (t *translator) columns(w *writes, keys []newfile.Column) {
	at, text := t.first(t.debeziumOr("field.include.list", "fields.whitelist"), "fields.whitelist", "field.include.list")
	wanted := t.ofTopic(list(text))
	excluded := t.ofTopic(list(t.take("field.exclude.list")))
	w.columns = slices.Clone(keys)
	add := func(c newfile.Column) {
		if !slices.ContainsFunc(w.columns, func(o newfile.Column) bool { return o.Name == c.Name }) && !slices.Contains(excluded, c.Name) {
			w.columns = append(w.columns, c)
		}
	}
	switch {
	case len(wanted) > 0:
		for _, name := range wanted {
			if t.value.has(name) {
				add(t.value.field(name))
			}
		}
		t.done(at, "the columns")
	default:
		for _, f := range t.samples() {
			add(f)
		}
		for _, f := range t.value.fields {
			add(f)
		}
		if t.value.open && len(t.fields) == 0 {
			t.todo(at, "the connector writes every field of the value: write a line for each, or run the command again with --sample FILE or --from-topic")
		}
	}
	if len(excluded) > 0 {
		t.done("field.exclude.list", "these have no columns")
	}
	if len(w.columns) == 0 {
		w.columns = []newfile.Column{{Name: "value", From: "body", Type: "json"}}
	}
	for i := range w.columns {
		w.columns[i].Name = t.db.name(w.columns[i].Name)
	}
	for i := range w.key {
		w.key[i] = t.db.name(w.key[i])
	}
	t.types(w)
}

// types says what a type that the configuration does not have depends on.
func (t *translator) types(w *writes) {
	var without []string
	for i, c := range w.columns {
		if s := t.sample(c); c.Type == "" && s != nil {
			w.columns[i].Type, w.columns[i].Format, w.columns[i].Zone = s.Type, s.Format, s.Zone
		} else if c.Type == "" {
			without = append(without, c.Name)
		}
	}
	switch {
	case len(without) == 0:
	case w.create || w.evolve:
		t.todo(t.debeziumOr("schema.evolution", "auto.create"), "the connector takes the types of new columns from the record's schema: write the types of %s, or run the command again with --sample FILE", named(strings.Join(without, ", ")))
	default:
		t.different("columns", "%s: without a type they are texts, which most databases cast to the column's type; write the type of booleans and times", named(strings.Join(without, ", ")))
	}
}

// ofTopic returns the fields of lists in which a field may follow its topic.
func (t *translator) ofTopic(fields []string) (names []string) {
	for _, f := range fields {
		if i := strings.LastIndex(f, ":"); i >= 0 {
			f = f[i+1:]
		}
		names = append(names, f)
	}
	return names
}

// samples are the fields of samples that the connector writes.
func (t *translator) samples() (fields []newfile.Column) {
	if !t.value.open {
		return nil
	}
	for _, f := range t.fields {
		path, ok := strings.CutPrefix(f.From, t.value.root+".")
		if !ok || t.value.changes && strings.HasPrefix(path, "__") {
			continue
		}
		f.Required = false // a field may be null
		if t.value.flat != "" {
			f.Name = strings.ReplaceAll(path, ".", t.value.flat)
		} else if !strings.ContainsAny(path, ".[") {
			f.Name = path
		}
		if !slices.Contains(t.value.gone, f.Name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// sample returns what samples say of a column, nil without.
func (t *translator) sample(c newfile.Column) *newfile.Column {
	for i, f := range t.fields {
		if f.From == c.From {
			return &t.fields[i]
		}
	}
	return nil
}

// deletions translates what deletes a row.
func (t *translator) deletions(w *writes, enabled bool, keys []newfile.Column) {
	r := &t.value
	enabled = enabled && !r.deletes.dropped
	if r.changes {
		t.changeDeletions(w, enabled)
		return
	}
	switch {
	case !enabled:
		t.nulls(w)
	case len(w.key) == 0:
		t.todo("delete.enabled", "a delete needs the columns of the key: write key")
	case slices.ContainsFunc(keys, func(c newfile.Column) bool { return c.From != "key" }):
		w.deleteWhen = "tombstone"
		t.todo("delete.enabled", "a null value has no fields, and keys are not decoded: only a key that is one text can delete, as from: key")
	default:
		w.deleteWhen = "tombstone"
		t.done("delete.enabled", "delete_when: tombstone")
	}
}

// nulls says what becomes of null values that delete nothing.
func (t *translator) nulls(w *writes) {
	if slices.ContainsFunc(w.columns, func(c newfile.Column) bool { return c.Required && c.From != "key" }) {
		t.different("delete.enabled", "a null value becomes a dead letter, where the connector stops")
		return
	}
	t.different("delete.enabled", "a null value becomes a row of NULLs, where the connector stops: in a compacted topic write required: true for a column that each record has")
}

// changeDeletions is deletions for change events of Debezium.
func (t *translator) changeDeletions(w *writes, enabled bool) {
	t.different("source.format", "records are taken for change events of Debezium; if they were flattened before, each becomes a dead letter that says so: remove envelope: debezium")
	truncates := t.is("truncate.enabled")
	keyed := len(w.key) > 0 && !w.update
	switch {
	case t.value.deletes.rewrite:
		t.done("delete.enabled", "a deleted row stays, with __deleted")
		if keyed {
			w.deleteWhen = "{body.__op: none}"
		}
	case enabled && keyed:
		t.done("delete.enabled", "deletes delete the row of their key")
	default:
		w.only = "{body.__op: {not: [d, t]}}"
		t.done("delete.enabled", "false: deletes are left out")
		return
	}
	switch {
	case truncates && keyed:
		w.truncates = "delete"
		t.done("truncate.enabled", "truncates: delete")
	case keyed:
		w.truncates = "skip"
	default:
		w.only = "{body.__op: {not: t}}"
	}
}

func names(columns []newfile.Column) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Name
	}
	return list
}
