package connector

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
)

// transform is one of the connector's transforms.
type transform struct {
	*translator
	prefix string // "transforms.NAME."
	side   string // Key or Value, for those that have both
}

// option returns the value of an option.
func (x *transform) option(name string) string { return x.take(x.prefix + name) }

func (x *transform) did(format string, args ...any) { x.done(x.prefix+"type", format, args...) }

// transforms are those that have an equivalent.
var transforms = map[string]func(*transform){
	"io.debezium.transforms.ExtractNewRecordState":           (*transform).unwrap,
	"io.debezium.transforms.UnwrapFromEnvelope":              (*transform).unwrap,
	"org.apache.kafka.connect.transforms.ReplaceField":       (*transform).replaceField,
	"org.apache.kafka.connect.transforms.MaskField":          (*transform).maskField,
	"org.apache.kafka.connect.transforms.RegexRouter":        (*transform).regexRouter,
	"org.apache.kafka.connect.transforms.TimestampConverter": (*transform).timestampConverter,
	"org.apache.kafka.connect.transforms.Flatten":            (*transform).flatten,
	"org.apache.kafka.connect.transforms.ExtractField":       (*transform).extractField,
	"org.apache.kafka.connect.transforms.InsertField":        (*transform).insertField,
	"org.apache.kafka.connect.transforms.HoistField":         (*transform).hoistField,
	"org.apache.kafka.connect.transforms.ValueToKey":         (*transform).valueToKey,
	"org.apache.kafka.connect.transforms.Cast":               (*transform).cast,
	"org.apache.kafka.connect.transforms.Filter":             (*transform).filter,
	"io.confluent.connect.transforms.TombstoneHandler":       (*transform).dropTombstones,
	"org.apache.kafka.connect.transforms.SetSchemaMetadata":  (*transform).noEffect,
	"org.apache.kafka.connect.transforms.DropHeaders":        (*transform).noEffect,
	"org.apache.kafka.connect.transforms.InsertHeader":       (*transform).noEffect,
}

// lost says what is missing without a transform that has no equivalent.
var lost = map[string]string{
	"org.apache.kafka.connect.transforms.TimestampRouter":    "it puts the record's time into the topic, and with it into the table's name",
	"org.apache.kafka.connect.transforms.HeaderFrom":         "it copies or moves fields of the record into headers",
	"io.debezium.transforms.ByLogicalTableRouter":            "it gives several topics one name, and with it one table",
	"io.debezium.transforms.ContentBasedRouter":              "it sends records to tables by an expression: write routes",
	"io.debezium.transforms.Filter":                          "it leaves records out by an expression: write only",
	"io.debezium.transforms.outbox.EventRouter":              "it makes the outbox table's payload the record",
	"io.debezium.transforms.TimezoneConverter":               "it converts times to another zone",
	"io.confluent.connect.transforms.Filter":                 "it leaves records out by a condition: write only",
	"io.confluent.connect.transforms.ExtractTopic":           "it takes the topic, and with it the table, from a field: write routes",
	"io.confluent.connect.transforms.MessageTimestampRouter": "it puts a time into the topic, and with it into the table's name",
	"io.confluent.connect.transforms.GzipDecompress":         "it decompresses the value: write format: {compression: gzip}",
	"io.aiven.kafka.connect.transforms.ExtractTopic":         "it takes the topic, and with it the table, from a field: write routes",
	"io.aiven.kafka.connect.transforms.ExtractTimestamp":     "it takes the record's time from a field",
	"io.aiven.kafka.connect.transforms.Hash":                 "it replaces a field by its hash",
	"io.aiven.kafka.connect.transforms.FilterByFieldValue":   "it leaves records out by a field: write only",
	"io.aiven.kafka.connect.transforms.ConcatFields":         "it joins fields: write concat(…)",
	"io.aiven.kafka.connect.transforms.TombstoneHandler":     "it decides what becomes of null values",
	"io.aiven.kafka.connect.transforms.MakeTombstone":        "it makes null values of records",
	"io.aiven.kafka.connect.transforms.KeyToValue":           "it copies fields of the key into the value",
	"io.confluent.connect.transforms.Drop":                   "it removes the record's key or value",
}

// readTransforms follows a record through the transforms, in their order.
func (t *translator) readTransforms() error {
	r := &t.value
	r.root, r.open, r.renamed = "body", true, func(topic string) string { return topic }
	if t.kind == debezium {
		r.changes = true
	}
	for _, name := range list(t.take("transforms")) {
		x := &transform{translator: t, prefix: "transforms." + name + "."}
		class := x.option("type")
		class, x.side, _ = strings.Cut(class, "$")
		apply := transforms[class]
		applies, understood := x.predicate(class)
		switch {
		case !understood:
			t.todo(x.prefix+"predicate", "%s: on which records the transform works is not translated", named(class))
			x.skip()
		case !applies:
			x.did("left out: its predicate holds for no record")
			x.skip()
		case apply == nil:
			why := lost[class]
			if why == "" {
				why = "look up what it changes"
			}
			t.todo(x.prefix+"type", "%s is not translated: %s", named(class), why)
			x.skip()
		default:
			apply(x)
		}
	}
	t.take("predicates")
	for key := range t.values {
		if strings.HasPrefix(key, "predicates.") {
			t.used[key] = true
		}
	}
	return nil
}

// skip marks the options of a transform as read: the note on its type stands for them.
func (x *transform) skip() {
	for key := range x.values {
		if strings.HasPrefix(key, x.prefix) {
			x.used[key] = true
		}
	}
}

// predicate reports whether a transform applies to records with values.
func (x *transform) predicate(class string) (applies, understood bool) {
	name := x.option("predicate")
	negated := strings.EqualFold(x.option("negate"), "true")
	if name == "" {
		return true, true
	}
	at := "predicates." + name + "."
	switch strings.TrimPrefix(x.take(at+"type"), "org.apache.kafka.connect.transforms.predicates.") {
	case "RecordIsTombstone":
		if strings.HasSuffix(class, ".Filter") {
			return true, !negated
		}
		return negated, true // a null value has no fields to change
	case "TopicNameMatches":
		pattern, err := regexp.Compile("^(?:" + x.take(at+"pattern") + ")$")
		topics := list(x.values["topics"])
		if x.topic != "" {
			topics = []string{x.topic}
		}
		if err != nil || len(topics) == 0 {
			return false, false
		}
		matching := 0
		for _, topic := range topics {
			if pattern.MatchString(topic) != negated {
				matching++
			}
		}
		return matching > 0, matching == 0 || matching == len(topics)
	}
	return false, false
}

func (x *transform) noEffect() {
	x.skip()
	x.did("no effect on rows")
}

func (x *transform) unwrap() {
	r := &x.value
	r.changes = true
	x.did("source.format.envelope: debezium")
	keepsTombstones := strings.EqualFold(x.option("drop.tombstones"), "false")
	deletes, mode := x.option("delete.handling.mode"), x.option("delete.tombstone.handling.mode")
	switch {
	case among(deletes, "rewrite") || among(mode, "rewrite", "rewrite-with-tombstone"):
		r.deletes.rewrite = true
	case among(deletes, "none"), keepsTombstones, among(mode, "tombstone", "delete-to-tombstone"):
	case mode == "" && deletes == "" && x.values[x.prefix+"drop.tombstones"] == "":
		x.different(x.prefix+"delete.tombstone.handling.mode", "not set: deletes count, as in Debezium 2.5 and later; earlier versions left them out")
	default:
		r.deletes.dropped = true
	}
	prefix, given := x.option("add.fields.prefix"), x.values[x.prefix+"add.fields.prefix"]
	if given == "" {
		prefix = "__"
	}
	for _, field := range list(x.option("add.fields")) {
		path, name, aliased := strings.Cut(field, ":")
		if !aliased {
			name = strings.ReplaceAll(path, ".", "_")
		}
		from := map[string]string{"op": "__op", "table": "__table", "schema": "__schema", "lsn": "__lsn", "ts_ms": "__ts_ms", "source.ts_ms": "__source_ts_ms", "source.table": "__table", "source.schema": "__schema", "source.lsn": "__lsn"}[path]
		if from == "" {
			x.todo(x.prefix+"add.fields", "%s is not among the fields of envelope: debezium", named(field))
			continue
		}
		kind := "text"
		if strings.HasSuffix(from, "_ms") || from == "__lsn" {
			kind = "bigint"
		}
		r.fields = append(r.fields, newfile.Column{Name: prefix + name, From: r.root + step(from), Type: kind})
	}
	if r.deletes.rewrite {
		r.fields = append(r.fields, newfile.Column{Name: "__deleted", From: r.root + ".__deleted", Type: "text"})
	}
	if x.option("add.headers") != "" {
		x.used[x.prefix+"add.headers"] = true // the connectors write no headers
	}
	for _, option := range []string{"route.by.field", "drop.fields.header.name", "replace.null.with.default"} {
		if v := x.option(option); v != "" && !strings.EqualFold(v, "false") {
			x.todo(x.prefix+option, "not translated: it changes which table or which fields are written")
		}
	}
}

func (x *transform) replaceField() {
	if x.onKey() {
		return
	}
	r := &x.value
	for _, rename := range list(x.option("renames")) {
		old, name, ok := strings.Cut(rename, ":")
		if ok {
			r.known(old).Name = name
		}
	}
	_, exclude := x.first(x.prefix+"exclude", x.prefix+"blacklist")
	_, include := x.first(x.prefix+"include", x.prefix+"whitelist")
	for _, name := range list(exclude) {
		r.drop(name)
	}
	if names := list(include); len(names) > 0 {
		kept := make([]newfile.Column, 0, len(names))
		for _, name := range names {
			kept = append(kept, r.field(name))
		}
		r.fields, r.open = kept, false
	}
	x.did("the columns of the mapping")
}

func (x *transform) maskField() {
	if x.onKey() {
		return
	}
	replacement := x.option("replacement")
	for _, name := range list(x.option("fields")) {
		if replacement == "" {
			x.value.drop(name)
			x.todo(x.prefix+"fields", "%s: the connector writes an empty value of the field's type: its column is left out here, so that nothing unmasked is written; write a column with a default, or leave it so", named(name))
			continue
		}
		fix(x.value.known(name), replacement)
	}
	x.did("the columns have the replacement")
}

func (x *transform) regexRouter() {
	pattern, err := regexp.Compile("^(?:" + x.option("regex") + ")$")
	replacement := x.option("replacement")
	if err != nil {
		x.todo(x.prefix+"regex", "not translated: its pattern is one of Java's only: write the table's name")
		return
	}
	before := x.value.renamed
	to := javaGroup.ReplaceAllString(replacement, "$${$1}")
	x.value.renamed = func(topic string) string {
		topic = before(topic)
		if m := pattern.FindStringSubmatchIndex(topic); m != nil {
			return string(pattern.ExpandString(nil, to, topic, m))
		}
		return topic
	}
	x.did("the table's name")
}

// javaGroup is a group in a replacement: there it ends after its digits, in Go after all letters.
var javaGroup = regexp.MustCompile(`\$([0-9]+)`)

func (x *transform) timestampConverter() {
	if x.onKey() {
		return
	}
	name, target := x.option("field"), strings.ToLower(x.option("target.type"))
	layout, precision := x.option("format"), x.option("unix.precision")
	x.option("replace.null.with.default")
	if name == "" {
		x.todo(x.prefix+"field", "not set: a value that is one time is not translated")
		return
	}
	c := x.value.known(name)
	unix := map[string]string{"": "unix_ms", "milliseconds": "unix_ms", "seconds": "unix", "microseconds": "unix_us", "nanoseconds": "unix_ns"}[precision]
	switch target {
	case "timestamp", "date":
		c.Type, c.Format = target, unix
		if target == "date" {
			c.Format = "unix_days"
		}
		if layout != "" {
			c.Format = layout
			if target == "timestamp" && !strings.ContainsAny(layout, "XZz") {
				c.Zone = "UTC"
			}
		}
		if x.format.envelope != "" && layout == "" {
			c.Format = "" // with a schema a time is decoded
			x.different(x.prefix+"field", "%s: a number without a schema needs format: %s in the mapping", named(name), unix)
		}
		x.did("%s: type: %s", named(name), target)
	default:
		x.todo(x.prefix+"target.type", "%s of %s: Sluice writes times as times; change the column, or write the text in the sender's form", named(target), named(name))
	}
}

func (x *transform) flatten() {
	if x.onKey() {
		return
	}
	delimiter := x.option("delimiter")
	if delimiter == "" {
		delimiter = "."
	}
	x.value.flat = delimiter
	x.did("paths into the body")
}

func (x *transform) extractField() {
	name := x.option("field")
	if x.side == "Key" {
		f := x.keyField(name)
		x.value.key = key{one: f.From}
		x.did("the key's column is from %s", named(f.From))
		return
	}
	f := x.value.field(name)
	x.value.fields, x.value.gone, x.value.open = nil, nil, true
	x.value.root = f.From
	x.did("paths below %s", named(f.From))
	if !strings.HasPrefix(f.From, "body") {
		x.todo(x.prefix+"field", "the field is made by a transform, and has no fields")
	}
}

// keyField returns a field of the key. The key itself is not decoded: the field of the value with
// this name stands for it.
func (t *translator) keyField(name string) newfile.Column {
	for _, f := range t.value.key.fields {
		if f.Name == name {
			return f
		}
	}
	return t.value.field(name)
}

func (x *transform) insertField() {
	if x.onKey() {
		return
	}
	from := func(option, place string) {
		if name := strings.TrimRight(x.option(option), "!?"); name != "" {
			x.value.known(name).From = place
			x.did("%s: from %s", named(name), named(place))
		}
	}
	from("partition.field", "partition")
	from("offset.field", "sequence")
	from("timestamp.field", "enqueued")
	if name, value := strings.TrimRight(x.option("static.field"), "!?"), x.option("static.value"); name != "" && value != "" {
		fix(x.value.known(name), value)
		x.did("%s: a fixed value", named(name))
	}
	from("topic.field", topicPlace)
}

// topicPlace stands for the topic's name, which each stage puts in its place.
const topicPlace = "topic"

func (x *transform) hoistField() {
	name := x.option("field")
	if x.side == "Key" {
		if one := x.value.key.one; one != "" {
			x.value.key = key{fields: []newfile.Column{{Name: name, From: one}}}
		} else if x.values["key.converter"] == stringConverter {
			x.value.key = key{fields: []newfile.Column{{Name: name, From: "key"}}}
		}
		x.did("the key's field %s", named(name))
		return
	}
	column := newfile.Column{Name: name, From: x.value.root, Type: "json"}
	if among(x.values["value.converter"], stringConverter) {
		column.Type = "text"
	} else if among(x.values["value.converter"], bytesConverter) {
		column.Type = "bytes"
	}
	x.value.fields, x.value.open = []newfile.Column{column}, false
	x.did("%s has the whole value", named(name))
}

func (x *transform) valueToKey() {
	x.value.key = key{}
	for _, name := range list(x.option("fields")) {
		f := x.value.field(name)
		f.Name = name
		x.value.key.fields = append(x.value.key.fields, f)
	}
	x.option("replace.null.with.default")
	x.did("the key's columns are from the value")
}

// castTypes are the types of columns for those of Cast.
var castTypes = map[string]string{
	"int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint", "float32": "real", "float64": "double", "boolean": "boolean", "string": "text",
}

func (x *transform) cast() {
	if x.onKey() {
		return
	}
	for _, pair := range list(x.option("spec")) {
		name, typ, _ := strings.Cut(pair, ":")
		if to := castTypes[strings.ToLower(typ)]; to != "" {
			x.value.known(name).Type = to
			x.did("%s: type: %s", named(name), to)
			continue
		}
		x.todo(x.prefix+"spec", "%s is not translated", named(pair))
	}
	x.option("replace.null.with.default")
	x.different(x.prefix+"type", "the connector cuts off fractions and wraps what is out of range; here such an event becomes a dead letter")
}

// filter is Filter with the predicate RecordIsTombstone.
func (x *transform) filter() {
	if x.values[x.prefix+"predicate"] == "" {
		x.todo(x.prefix+"type", "Filter without a predicate leaves out every record")
		return
	}
	x.dropTombstones()
}

func (x *transform) dropTombstones() {
	if behavior := x.option("behavior"); among(behavior, "fail") {
		x.different(x.prefix+"behavior", "a null value becomes a dead letter")
	}
	x.value.deletes.dropped = true
	x.did("null values delete nothing")
}

// onKey reports whether a transform is on the key, which is not decoded.
func (x *transform) onKey() bool {
	if x.side != "Key" {
		return false
	}
	x.skip()
	x.todo(x.prefix+"type", "a transform of the key is not translated: the key's columns are from the value")
	return true
}

// readTopics names the topics and their tables.
func (t *translator) readTopics() error {
	topics, pattern := list(t.take("topics")), t.take("topics.regex")
	switch {
	case len(topics) > maxTopics:
		return fmt.Errorf("topics has more than %d", maxTopics)
	case len(topics) == 0 && pattern == "":
		return errors.New("it has neither topics nor topics.regex")
	case t.topic != "":
		if reads, known := t.reads(topics, pattern); known && !reads {
			return fmt.Errorf("it does not read the topic %s", named(t.topic))
		}
		t.done(t.only(len(topics) > 0), "of the topics only %s", named(t.topic))
		topics = []string{t.topic}
	case len(topics) == 0:
		t.todo("topics.regex", "%s: a pipeline reads topics by their names: run the command with --from-topic for each of them", named(pattern))
		t.stages = []stage{{name: "topic", topic: "${TOPIC}"}}
	}
	for _, topic := range topics {
		t.stages = append(t.stages, stage{topic: variables(topic), name: stageName(topic, t.stages)})
	}
	key, format := t.first(t.debeziumOr("collection.name.format", "table.name.format"), "table.name.format", "collection.name.format")
	mapping := list(t.take("topics.to.tables.mapping"))
	for i := range t.stages {
		t.table(&t.stages[i], key, format, mapping)
	}
	for _, strategy := range []string{"collection.naming.strategy", "table.naming.strategy", "column.naming.strategy"} {
		if class := t.take(strategy); class != "" && !strings.Contains(class, ".Default") {
			t.todo(strategy, "%s is not translated: write the names yourself", named(class))
		}
	}
	return nil
}

// reads reports whether the connector reads the chosen topic, as far as that is known.
func (t *translator) reads(topics []string, pattern string) (reads, known bool) {
	if len(topics) > 0 {
		return slices.Contains(topics, t.topic), true
	}
	compiled, err := regexp.Compile("^(?:" + pattern + ")$")
	return err == nil && compiled.MatchString(t.topic), err == nil
}

func (t *translator) only(listed bool) string {
	if listed {
		return "topics"
	}
	return "topics.regex"
}

var notInStage = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func stageName(topic string, others []stage) string {
	name := strings.Trim(notInStage.ReplaceAllString(topic, "-"), "-")
	const most = 50
	if name = name[:min(len(name), most)]; name == "" {
		name = "topic"
	}
	for n := 2; ; n++ {
		tried := name
		if n > 2 {
			tried = fmt.Sprintf("%s-%d", name, n-1)
		}
		if !slices.ContainsFunc(others, func(s stage) bool { return s.name == tried }) {
			return tried
		}
	}
}
