// Package connector translates the configuration of a JDBC sink of Kafka Connect into a pipeline
// file. It reads those of Confluent, Aiven and Debezium. What it cannot translate it names, and a
// file that would write something else than the connector does not run until a user has completed
// it.
package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/internal/humanize"
)

// MaxSize is the size of the largest configuration in bytes.
const MaxSize = 1 << 20

// maxKeys bounds the keys of a configuration, and maxTopics the topics that it names.
const (
	maxKeys   = 2000
	maxTopics = 200
)

// kind is whose connector it is.
type kind string

const (
	confluent kind = "Confluent"
	aiven     kind = "Aiven"
	debezium  kind = "Debezium"
)

var kinds = map[string]kind{
	"io.confluent.connect.jdbc.JdbcSinkConnector":  confluent,
	"io.aiven.connect.jdbc.JdbcSinkConnector":      aiven,
	"io.debezium.connector.jdbc.JdbcSinkConnector": debezium,
}

// Sink is the configuration of a connector.
type Sink struct {
	Name   string
	class  string
	kind   kind
	values map[string]string
}

// Read reads a configuration: {"name": …, "config": {…}}, or the keys alone. Errors show no values,
// which may be secrets.
func Read(data []byte) (*Sink, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has more than %d bytes", MaxSize)
	}
	whole, err := object(data)
	if err != nil {
		return nil, err
	}
	keys := whole
	if raw := whole["config"]; len(bytes.TrimSpace(raw)) > 0 && bytes.TrimSpace(raw)[0] == '{' {
		if keys, err = object(raw); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		if keys["name"] == nil && whole["name"] != nil {
			keys["name"] = whole["name"]
		}
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	s := &Sink{values: map[string]string{}}
	for key, raw := range keys {
		text, ok := scalar(raw)
		if !ok {
			return nil, fmt.Errorf("key %q: the value must be a text, a number, true or false", humanize.Shorten(key, 60))
		}
		s.values[key] = strings.TrimSpace(text)
	}
	s.Name, s.class = s.values["name"], s.values["connector.class"]
	if s.Name == "" {
		s.Name = "connector"
	}
	if s.class == "" {
		return nil, errors.New("it has no connector.class: pass the JSON that GET /connectors/NAME of Kafka Connect returns")
	}
	if s.kind = kinds[s.class]; s.kind == "" {
		return nil, fmt.Errorf("connector.class %q is none of %s", humanize.Shorten(s.class, 100), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	return s, nil
}

func object(data []byte) (map[string]json.RawMessage, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil || keys == nil {
		return nil, errors.New("it is no JSON object: pass the configuration of one connector")
	}
	return keys, nil
}

// Topics returns the topics that the connector names, none if it reads by a pattern.
func (s *Sink) Topics() []string { return list(s.values["topics"]) }

// scalar returns a value as Kafka Connect takes it: a text.
func scalar(raw json.RawMessage) (text string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
