package connector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/pipeline"
)

// Note says what became of a key.
type Note struct{ Key, Text string }

// Translation is a pipeline file that does what a connector does.
type Translation struct {
	Text      string
	Done      []Note   // what the file has
	Different []Note   // what is not in it, or behaves in another way
	Needless  []Note   // what needs no counterpart, and why
	Todo      []Note   // what a user must do first: the file does not run before
	Group     string   // the consumer group of Kafka that has the connector's offsets
	Stages    []string // more than one topic
	Variables []string // that the file needs
}

// Config says what is known beside the configuration.
type Config struct {
	// Topic is the only topic that the file is for. Default: all.
	Topic string
	// Fields are those of the values, if samples of them were seen; their From is the path in a
	// decoded body.
	Fields []newfile.Column
}

// translator translates one connector.
type translator struct {
	*Sink
	used   map[string]bool
	topic  string
	fields []newfile.Column
	result *Translation

	db     database
	source source
	format format
	value  record
	stages []stage
}

// stage is one topic and its table.
type stage struct{ name, topic, table string }

// Translate makes a pipeline file. An error says why there can be none.
func (s *Sink) Translate(cfg *Config) (*Translation, error) {
	t := &translator{Sink: s, used: map[string]bool{}, topic: cfg.Topic, fields: cfg.Fields, result: &Translation{}}
	t.take("name")
	t.take("connector.class")
	steps := []func() error{t.readDatabase, t.readSource, t.readFormat, t.readTransforms, t.readTopics, t.readErrors}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	w, err := t.readWrites()
	if err != nil {
		return nil, err
	}
	t.rest()
	text := t.file(w)
	t.result.Text = text
	t.result.Group = cmp.Or(t.values["consumer.override.group.id"], "connect-"+s.Name)
	for _, st := range t.stages {
		if len(t.stages) > 1 {
			t.result.Stages = append(t.result.Stages, st.name)
		}
	}
	if t.result.Variables, err = check(text); err != nil {
		return nil, fmt.Errorf("what the connector does is no valid pipeline: %w", err)
	}
	return t.result, nil
}

// check reads the file, and returns its variables.
func check(text string) (variables []string, err error) {
	_, err = pipeline.ParseFile("connector.yaml", []byte(text), func(name string) (string, bool) {
		if !slices.Contains(variables, name) {
			variables = append(variables, name)
		}
		return Lookup(name)
	})
	return variables, err
}

// Lookup returns a value that is valid in the file in place of a variable.
func Lookup(name string) (string, bool) {
	switch {
	case name == todoVariable:
		return "64MiB", true
	case name == "DATABASE_URL":
		return newfile.AnyAddress("postgres"), true
	case strings.Contains(name, "BROKERS"):
		return "localhost:9092", true
	case strings.Contains(name, "PORT"):
		return "5432", true
	case strings.Contains(name, "URL"):
		return "https://example.com", true
	}
	return "x", true
}

// take returns the value of a key, and marks it as read.
func (t *translator) take(key string) string {
	t.used[key] = true
	return t.values[key]
}

// first returns the first of several keys with a value, and marks all as read.
func (t *translator) first(keys ...string) (key, value string) {
	for _, k := range keys {
		if v := t.take(k); v != "" && value == "" {
			key, value = k, v
		}
	}
	return cmp.Or(key, keys[0]), value
}

// debeziumOr returns the name of a key that Debezium's connector calls otherwise.
func (t *translator) debeziumOr(name, otherwise string) string {
	if t.kind == debezium {
		return name
	}
	return otherwise
}

// is reports whether a key is true.
func (t *translator) is(key string) bool { return strings.EqualFold(t.take(key), "true") }

func (t *translator) done(key, format string, args ...any) {
	t.result.Done = append(t.result.Done, Note{key, fmt.Sprintf(format, args...)})
}

func (t *translator) different(key, format string, args ...any) {
	t.result.Different = append(t.result.Different, Note{key, fmt.Sprintf(format, args...)})
}

func (t *translator) todo(key, format string, args ...any) {
	t.result.Todo = append(t.result.Todo, Note{key, fmt.Sprintf(format, args...)})
}

// rest names the keys that nothing has read.
func (t *translator) rest() {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if t.used[key] {
			continue
		}
		if why := needless(key); why != "" {
			t.result.Needless = append(t.result.Needless, Note{key, why})
			continue
		}
		t.different(key, "not translated: this key is not known")
	}
}

// list returns the parts of a list, without empty ones.
func list(text string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
