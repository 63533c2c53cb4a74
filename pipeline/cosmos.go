package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/strictyaml"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
)

// document is the record of a pipeline for Cosmos DB.
type document = cosmos.Document

// cosmosTarget is a container of Cosmos DB, and how an event becomes a document of
// it: the event's body, with an id and a partition key.
type cosmosTarget struct {
	endpoint, key, credential string
	database, container       string
	operation                 cosmos.Operation
	conditional               bool
	config                    cosmos.Config
	ru                        int // request units a second; 0: no limit

	id     origin
	parts  []keyPart // of the partition key
	picker *jsonpick.Picker
	paths  int
}

// keyPart is a component of the partition key. If property is set, the value is not
// in the body, and is added to the document under that name.
type keyPart struct {
	from     origin
	property string
	slot     int // the index of the body's value under that name among those picked
}

// emulatorKey is the published key of Microsoft's emulator, and of Sluice's. It is no secret.
// https://learn.microsoft.com/azure/cosmos-db/emulator
const emulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

var operations = map[string]cosmos.Operation{"upsert": cosmos.Upsert, "create": cosmos.Create, "replace": cosmos.Replace}

// readCosmos reads target.cosmos, which may take so many request units a second; 0: no limit.
func readCosmos(n strictyaml.Node, ru int) *cosmosTarget {
	t := &cosmosTarget{ru: ru}
	var mode, operation string
	var batch, cached *strictyaml.Node
	auth := 0
	ok := n.Object(strictyaml.Keys{
		"endpoint": func(n strictyaml.Node) { n.Text(&t.endpoint) },
		"key": func(n strictyaml.Node) {
			auth++
			if literal := n.Literal(); literal != "" && literal != emulatorKey {
				n.Fail("holds a key: put it into an environment variable and write ${COSMOS_KEY}")
				return
			}
			n.Text(&t.key)
		},
		"credential": func(n strictyaml.Node) {
			auth++
			n.OneOf(&t.credential, "default")
		},
		"database":      func(n strictyaml.Node) { n.Text(&t.database) },
		"container":     func(n strictyaml.Node) { n.Text(&t.container) },
		"operation":     func(n strictyaml.Node) { n.OneOf(&operation, "upsert", "create", "replace") },
		"mode":          func(n strictyaml.Node) { n.OneOf(&mode, "bulk", "point") },
		"conditional":   func(n strictyaml.Node) { n.Bool(&t.conditional) },
		"id":            func(n strictyaml.Node) { t.id, _ = readOrigin(n) },
		"partition_key": t.readKey,
		"batch": func(n strictyaml.Node) {
			batch = &n
			n.Object(strictyaml.Keys{
				"documents": func(n strictyaml.Node) { n.Int(&t.config.MaxOperations, 1, maxDocuments) },
				"bytes":     func(n strictyaml.Node) { n.SizeIn(&t.config.MaxBytes, 1, maxDocumentBytes) },
				"wait":      func(n strictyaml.Node) { n.DurationIn(&t.config.FlushAfter, time.Millisecond, maxTimeout) },
			})
		},
		"concurrency": func(n strictyaml.Node) { n.Int(&t.config.Concurrency, 1, maxConcurrency) },
		"timeout":     func(n strictyaml.Node) { n.DurationIn(&t.config.Timeout, minTimeout, maxTimeout) },
		"cached_versions": func(n strictyaml.Node) {
			cached = &n
			n.Int(&t.config.CachedVersions, 1, 100_000_000)
		},
		"preferred_regions": func(n strictyaml.Node) {
			var text string
			if n.Text(&text) {
				for name := range strings.SplitSeq(text, ",") {
					t.config.Client.PreferredRegions = append(t.config.Client.PreferredRegions, strings.TrimSpace(name))
				}
			}
		},
	}, "endpoint", "database", "container", "id", "partition_key")
	if !ok {
		return t
	}
	if auth != 1 {
		n.Fail("needs one of key (write ${COSMOS_KEY}) and credential: default")
	}
	if mode == "point" && batch != nil {
		batch.Fail("is for mode: bulk: remove it, mode: point has one request for each document")
	}
	if cached != nil && !t.conditional {
		cached.Fail("is for conditional: true: remove it, other writes need no versions")
	}
	t.operation = operations[operation]
	if mode == "point" {
		t.config.Mode = cosmos.Point
	}
	t.compile()
	return t
}

func readOrigin(n strictyaml.Node) (origin, bool) {
	var text string
	if !n.Text(&text) {
		return origin{}, false
	}
	from, err := parseOrigin(text)
	if err != nil {
		return origin{}, n.Fail("%w", err)
	}
	if from.field == fieldBody {
		return origin{}, n.Fail("cannot be the whole body: write body.PATH")
	}
	return from, true
}

// Limits of one request in bulk, of Cosmos DB.
const (
	maxDocuments     = 100
	maxDocumentBytes = 2_000_000
)

// maxKeyParts is Cosmos DB's limit for hierarchical partition keys.
const maxKeyParts = 3

// readKey reads `body.path`, or a mapping of the properties that are the partition
// key to the origins of their values.
func (t *cosmosTarget) readKey(n strictyaml.Node) {
	if !n.IsMapping() {
		from, ok := readOrigin(n)
		if ok && from.field != fieldPath {
			n.Fail("%s is not in the body, so the document needs it as a property: write {NAME: %s}", from, from)
			return
		}
		t.parts = []keyPart{{from: from}}
		return
	}
	n.Each(func(name string, n strictyaml.Node) {
		from, ok := readOrigin(n)
		if !ok {
			return
		}
		part := keyPart{from: from}
		if from.field != fieldPath {
			if err := checkName(name); err != nil {
				n.Fail("%w", err)
			}
			part.property = name
		}
		t.parts = append(t.parts, part)
	})
	if len(t.parts) == 0 || len(t.parts) > maxKeyParts {
		n.Fail("has %d parts: write 1 to %d", len(t.parts), maxKeyParts)
	}
}

// compile assigns every path into the body its slot.
func (t *cosmosTarget) compile() {
	var paths []jsonpick.Path
	t.id.pick(&paths)
	for i := range t.parts {
		part := &t.parts[i]
		part.from.pick(&paths)
		if part.property != "" {
			path, err := jsonpick.ParsePath("[" + strconv.Quote(part.property) + "]")
			if err == nil {
				part.slot = len(paths)
				paths = append(paths, path)
			}
		}
	}
	t.paths = len(paths)
	t.picker = jsonpick.New(paths...)
}

// documents returns the event's document, with its source if writes are conditional.
func (t *cosmosTarget) documents(ctx context.Context, e *sluice.Event) ([]document, error) {
	doc, err := t.document(e)
	if err != nil {
		return nil, err
	}
	if t.conditional {
		lease := driver.FencingTokenOf(ctx).Lease
		doc.Source = sourceOf(lease.Group.Topic, driver.IncarnationOf(ctx), lease.Epoch, e)
	}
	return []document{doc}, nil
}

// sourceOf returns the source of a document that is written conditionally.
func sourceOf(topic, incarnation string, epoch int64, e *sluice.Event) *cosmos.Source {
	return &cosmos.Source{Topic: topic + " " + incarnation, Partition: e.Partition, Epoch: epoch, Sequence: e.Sequence}
}

// document returns the event's document without its source.
func (t *cosmosTarget) document(e *sluice.Event) (document, error) {
	picked := make([]jsonpick.Value, t.paths)
	body, err := jsonpick.UTF8(e.Body)
	if err == nil {
		err = t.picker.Pick(body, picked)
	}
	if err != nil {
		return document{}, fmt.Errorf("body: %w", err)
	}
	id, err := t.id.scalar(e, picked)
	if err != nil || id.kind != text && id.kind != number {
		return document{}, fmt.Errorf("id: %s: %w", t.id, orError(err, "is missing, or neither a text nor a number"))
	}
	doc := document{ID: string(id.text), Body: body, Operation: t.operation, PartitionKey: make([]any, len(t.parts))}
	for i := range t.parts {
		part := &t.parts[i]
		v, err := part.from.scalar(e, picked)
		if err == nil {
			doc.PartitionKey[i], err = keyValue(v)
		}
		if err != nil {
			return document{}, fmt.Errorf("partition key: %s: %w", part.from, err)
		}
		if part.property != "" {
			if doc.Body, err = part.addTo(doc.Body, doc.PartitionKey[i], picked[part.slot]); err != nil {
				return document{}, err
			}
		}
	}
	return doc, nil
}

func orError(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

func keyValue(v scalar) (any, error) {
	switch v.kind {
	case missing:
		return nil, errors.New("is missing")
	case null:
		return nil, nil
	case text:
		return string(v.text), nil
	case number:
		return json.Number(v.text), nil
	case boolean:
		return string(v.text) == "true", nil
	}
	return nil, errors.New("is neither a text, a number, a boolean nor null")
}

// addTo adds the value to the document, unless the document has it.
func (part *keyPart) addTo(body []byte, value any, held jsonpick.Value) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("partition key: %s: %w", part.from, err)
	}
	if held.Kind != jsonpick.Missing {
		if slices.Equal(encoded, held.Raw) {
			return body, nil
		}
		return nil, fmt.Errorf("partition key: the body has a property %s that differs from %s", part.property, part.from)
	}
	name, err := json.Marshal(part.property)
	if err != nil {
		return nil, fmt.Errorf("partition key: %w", err)
	}
	open := strings.IndexByte(string(body), '{')
	if open < 0 {
		return nil, errors.New("body: is not a JSON object")
	}
	rest := strings.TrimLeft(string(body[open+1:]), " \t\r\n")
	out := make([]byte, 0, len(body)+len(name)+len(encoded)+3)
	out = append(append(append(append(out, '{'), name...), ':'), encoded...)
	if rest != "" && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...), nil
}

// keyOf returns the ordering key of a record: writes of one document must not
// overtake each other.
func keyOf(d document) string {
	var b strings.Builder
	b.WriteString(d.ID)
	for _, v := range d.PartitionKey {
		fmt.Fprintf(&b, "\x00%v", v)
	}
	return b.String()
}

// open returns the sink, which connects when it is first used.
func (t *cosmosTarget) open(ru int) (*cosmos.Sink, error) {
	cfg := t.config
	cfg.RU, cfg.Conditional = float64(ru), t.conditional
	if t.credential == "" {
		return cosmos.New(t.endpoint, t.key, t.database, t.container, &cfg)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return cosmos.NewEntra(t.endpoint, credential, t.database, t.container, &cfg)
}

func (*cosmosTarget) kind() string         { return "cosmos" }
func (*cosmosTarget) mappings() []*mapping { return nil }

func (t *cosmosTarget) outlet(ctx context.Context, parts *Parts, _ telemetry) (outlet, error) {
	sink, err := t.open(t.ru)
	if err != nil {
		return nil, err
	}
	parts.onClose(sink.Close)
	// Report a wrong account at the start, as for a database.
	if err := sink.Check(ctx); err != nil {
		return nil, err
	}
	return &outletOf[document]{records: t.documents, sink: sink, key: keyOf}, nil
}

// check checks that the container can be read.
func (t *cosmosTarget) check(ctx context.Context, _ catalog) error {
	sink, err := t.open(0)
	if err != nil {
		return err
	}
	return errors.Join(sink.Check(ctx), sink.Close(ctx))
}
