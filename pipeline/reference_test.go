package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestReferenceIsThatOfTheReader(t *testing.T) {
	for _, problem := range Reference().Check(readExplored) {
		t.Error(problem)
	}
}

// Values at the bounds that the reference states are accepted, and those just outside are refused.
func TestReferenceHasTheBoundsOfTheReader(t *testing.T) {
	compared, problems := Reference().CheckBounds(readExplored, map[string]string{
		"retry_throttled": "target: {eventhub: {}}", // a target in a database does not have it
	})
	for _, problem := range problems {
		t.Error(problem)
	}
	if compared < 150 {
		t.Errorf("compared %d bounds", compared)
	}
}

// Bounds that the descriptions state in words, because they depend on other keys.
func TestBoundsInWords(t *testing.T) {
	const database = `source: {eventhub: {connection: "${C}", hub: h}}
partitions: balanced
database: "${D}"
target: {insert: {table: t, columns: {n: sequence}}}
`
	const blobs = `source: {eventhub: {connection: "${C}", hub: h}}
partitions: balanced
leases: {blob: {container: c, connection: "${S}"}}
target: {cosmos: {endpoint: "https://contoso.documents.azure.com:443/", key: "${K}", database: d, container: c, id: body.id, partition_key: body.key}}
`
	variables := map[string]string{
		"C": "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aw==", "D": "sqlite:x.db", "K": "aw==",
		"S": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=aw==;EndpointSuffix=core.windows.net",
	}
	with := func(text, change string) error {
		if old, key, ok := strings.Cut(change, " → "); ok {
			if !strings.Contains(text, old) {
				t.Fatalf("%s is not in the file", old)
			}
			text = strings.Replace(text, old, key, 1)
		} else {
			text += change + "\n"
		}
		_, err := ParseFile("p.yaml", []byte(text), func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
		return err
	}
	for _, c := range []struct{ file, inside, outside, key string }{
		{database, "lease: {for: 30s, renew: 10s}", "lease: {for: 30s, renew: 10001ms}", "lease"},
		{database, "lease: {for: 9s, renew: 3s}", "lease: {for: 8999ms, renew: 3s}", "lease"},
		{blobs, "lease: {for: 15s}", "lease: {for: 14s}", "lease"},
		{blobs, "lease: {for: 60s}", "lease: {for: 61s}", "lease"},
		{database, "assign: {every: 10s}", "assign: {every: 10001ms}", "assign"},
		{blobs, "partition_key: body.key → partition_key: {a: key, b: body.b, c: partition}", "partition_key: body.key → partition_key: {a: key, b: body.b, c: partition, d: sequence}", "partition_key"},
	} {
		if err := with(c.file, c.inside); err != nil {
			t.Errorf("%s: %v", c.inside, err)
		}
		if err := with(c.file, c.outside); err == nil || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v", c.outside, err)
		}
	}
}

const makeReference = "UPDATE=1 go test ./pipeline -run TestReferencePagesAreCurrent"

func TestReferencePagesAreCurrent(t *testing.T) {
	for name, want := range map[string][]byte{
		"../docs/reference/pipeline.md": Reference().Markdown("`" + makeReference + "`"),
		"../docs/schema/pipeline.json":  Reference().Schema(),
	} {
		if os.Getenv("UPDATE") != "" {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the reader makes (%v): run %s", name, err, makeReference)
		}
	}
}

func TestSchemaAcceptsExamplesAndDocs(t *testing.T) {
	s := newSchema(t)
	files := map[string]string{}
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(err, examples)
	}
	for _, path := range examples {
		files[path] = read(t, path)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../README.md")
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	whole := regexp.MustCompile(`(?m)^source:`)
	target := regexp.MustCompile(`(?m)^(target|routes):`)
	for _, path := range pages {
		for i, m := range block.FindAllStringSubmatch(read(t, path), -1) {
			if whole.MatchString(m[1]) && target.MatchString(m[1]) {
				text := m[1]
				if !strings.Contains(text, "\npartitions:") {
					text += "\npartitions: all\n"
				}
				files[fmt.Sprintf("%s block %d", path, i+1)] = text
			}
		}
	}
	for name, text := range files {
		if err := s.validate(t, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The schema of an autoscaler's file takes all examples. The test is here because the type schema
// is; a test of package autoscale/config compares the file with the reader.
func TestSchemaOfAutoscalersAcceptsExamples(t *testing.T) {
	s := schemaOf(t, []byte(read(t, "../docs/schema/autoscale.json")))
	examples, err := filepath.Glob("../examples/autoscale/*.yaml")
	if err != nil || len(examples) < 5 {
		t.Fatal(err, examples)
	}
	for _, path := range examples {
		text := read(t, path)
		if err := s.validate(t, text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, change := range [][2]string{{"rule:", "rules:"}, {"metrics:", "metric:"}, {"target:", "targets:"}} {
			if wrong := strings.Replace("\n"+text, "\n"+change[0], "\n"+change[1], 1); wrong != "\n"+text && s.validate(t, wrong) == nil {
				t.Errorf("%s: the schema accepts %s", path, change[1])
			}
		}
	}
}

const validFile = `source: {eventhub: {connection: "${C}", hub: h, prefetch: {events: 10}}}
partitions: balanced
lease: {for: 30s}
prefetch: 4MiB
database: "${D}"
target: {insert: {table: t, create: false, columns: {n: sequence}}}
`

func TestSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	s := newSchema(t)
	if err := s.validate(t, validFile); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) {
		return map[string]string{"C": "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aw==", "D": "sqlite:x.db"}[name], true
	}
	if _, err := ParseFile("p.yaml", []byte(validFile), lookup); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"lease:", "leese:"}, {"hub: h", "hubb: h"}, {"for: 30s", "for: 30"}, {"for: 30s", "for: soon"},
		{"events: 10", "events: 0"}, {"events: 10", "events: 5001"}, {"events: 10", "events: many"}, {"events: 10", "events: [1]"},
		{"4MiB", "4MB2"}, {"4MiB", "{bytes: 1}"}, {"create: false", "create: maybe"}, {"balanced", "most"},
		{"partitions: balanced\n", ""}, {"table: t, ", ""}, {"{n: sequence}", "[n]"}, {"{n: sequence}", "{n: {type: text}}"},
		{"{n: sequence}", "{n: {from: sequence, type: word}}"}, {"target: {insert:", "target: {cosmos: {}, insert:"},
		{"target:", "routes: []\ntarget:"}, {"{eventhub:", "{start: whenever, eventhub:"}, {"hub: h", "hub: "},
		{"{eventhub:", "{kafka: {topic: t}, eventhub:"},
	} {
		text := strings.Replace(validFile, change[0], change[1], 1)
		if text == validFile {
			t.Fatalf("%s is not in the file", change[0])
		}
		if _, err := ParseFile("p.yaml", []byte(text), lookup); err == nil {
			t.Errorf("the reader accepts %s", change[1])
		}
		if err := s.validate(t, text); err == nil {
			t.Errorf("the schema accepts %s", change[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// schema checks values against the keywords of JSON Schema that references use. It fails for
// others.
type schema struct{ root map[string]any }

func newSchema(t *testing.T) *schema { return schemaOf(t, Reference().Schema()) }

func schemaOf(t *testing.T, text []byte) *schema {
	s := &schema{}
	if err := json.Unmarshal(text, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *schema) validate(t *testing.T, text string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &v); err != nil {
		t.Fatal(err)
	}
	return s.check(s.root, v, "")
}

func (s *schema) check(rules map[string]any, v any, at string) error {
	fields, isObject := v.(map[string]any)
	text, isText := v.(string)
	number, isNumber := v.(float64)
	all := func(list any) (errs []error) {
		for _, one := range list.([]any) {
			if err := s.check(one.(map[string]any), v, at); err != nil {
				errs = append(errs, err)
			}
		}
		return errs
	}
	for word, rule := range rules {
		var err error
		switch word {
		case "$schema", "title", "description", "$defs", "default", "examples", "then", "else", "properties":
		case "$ref":
			err = s.check(s.root["$defs"].(map[string]any)[strings.TrimPrefix(rule.(string), "#/$defs/")].(map[string]any), v, at)
		case "if":
			branch := "then"
			if s.check(rule.(map[string]any), v, at) != nil {
				branch = "else"
			}
			err = s.check(rules[branch].(map[string]any), v, at)
		case "anyOf":
			if errs := all(rule); len(errs) == len(rule.([]any)) {
				err = fmt.Errorf("%s: none of %d forms: %v", at, len(errs), errs[len(errs)-1])
			}
		case "oneOf":
			if errs := all(rule); len(rule.([]any))-len(errs) != 1 {
				err = fmt.Errorf("%s: %d of one_of", at, len(rule.([]any))-len(errs))
			}
		case "allOf":
			if errs := all(rule); len(errs) > 0 {
				err = errs[0]
			}
		case "required":
			for _, key := range rule.([]any) {
				if _, ok := fields[key.(string)]; isObject && !ok {
					err = fmt.Errorf("%s.%s: is missing", at, key)
				}
			}
		case "additionalProperties":
			known, _ := rules["properties"].(map[string]any)
			for key, value := range fields {
				below, ok := known[key]
				if !ok && rule == false {
					return fmt.Errorf("%s.%s: unknown key", at, key)
				}
				if !ok {
					below = rule
				}
				if err := s.check(below.(map[string]any), value, at+"."+key); err != nil {
					return err
				}
			}
		case "items":
			list, _ := v.([]any)
			for _, item := range list {
				if err := s.check(rule.(map[string]any), item, at+"[]"); err != nil {
					return err
				}
			}
		case "type":
			types, ok := rule.([]any)
			if !ok {
				types = []any{rule}
			}
			if !slices.ContainsFunc(types, func(one any) bool { return isType(v, one.(string)) }) {
				err = fmt.Errorf("%s: not %v", at, types)
			}
		case "enum":
			if !slices.Contains(rule.([]any), v) {
				err = fmt.Errorf("%s: none of %v", at, rule)
			}
		case "pattern":
			if strings.Contains(rule.(string), "(?") {
				return fmt.Errorf("%s: the pattern %s is none of ECMA 262", at, rule)
			}
			if isText && !regexp.MustCompile(rule.(string)).MatchString(text) {
				err = fmt.Errorf("%s: %q does not match %s", at, text, rule)
			}
		case "minLength":
			if isText && text == "" {
				err = fmt.Errorf("%s: is empty", at)
			}
		case "minItems":
			if list, ok := v.([]any); ok && len(list) == 0 {
				err = fmt.Errorf("%s: is empty", at)
			}
		case "minimum", "maximum", "maxItems":
			if limit := rule.(float64); isNumber && (word == "minimum" && number < limit || word == "maximum" && number > limit) {
				err = fmt.Errorf("%s: %s %v", at, word, limit)
			}
		default:
			err = fmt.Errorf("keyword %s is not known to the test", word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case map[string]any:
		return name == "object"
	case []any:
		return name == "array"
	}
	return false
}
