package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
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

	id         origin
	parts      []keyPart // of the partition key
	withoutKey bool      // documents may lack properties of the partition key
	patch      *mapping  // of operation: patch
	patchAt    *strictyaml.Node
	ttl        timeToLive
	deleteWhen filter // its zero value matches no event here
	tombstones bool   // null bodies delete the document
	ownID      int    // the slot of the body's id
	picker     *jsonpick.Picker
	paths      int
}

// timeToLive is after how many seconds documents expire: a constant, or a value of the event.
type timeToLive struct {
	node     *strictyaml.Node // nil: none is given
	constant time.Duration
	part     keyPart
}

// keyPart is a component of the partition key. If property is set, the value is not
// in the body, and is added to the document under that name.
type keyPart struct {
	origin   origin
	property string
	slot     int // the index of the body's value under that name among those picked
}

// emulatorKey is the published key of Microsoft's emulator, and of Sluice's. It is no secret.
// https://learn.microsoft.com/azure/cosmos-db/emulator
const emulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

var operations = map[string]cosmos.Operation{"upsert": cosmos.Upsert, "create": cosmos.Create, "replace": cosmos.Replace, "delete": cosmos.Delete, "patch": cosmos.Patch}

// readCosmos reads target.cosmos, which may take so many request units a second; 0: no limit.
func readCosmos(n strictyaml.Node, ru int) *cosmosTarget {
	t := &cosmosTarget{ru: ru}
	var mode, operation, withoutKey string
	var batch, cached *strictyaml.Node
	auth := 0
	keys := strictyaml.Keys{
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
		"database":    func(n strictyaml.Node) { n.Text(&t.database) },
		"container":   func(n strictyaml.Node) { n.Text(&t.container) },
		"mode":        func(n strictyaml.Node) { n.OneOf(&mode, "bulk", "point") },
		"conditional": func(n strictyaml.Node) { n.Bool(&t.conditional) },
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
	}
	maps.Copy(keys, t.documentKeys(&operation, &withoutKey))
	if !n.Object(keys, "endpoint", "database", "container", "id", "partition_key") {
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
	t.operation, t.withoutKey = operations[operation], withoutKey == "write"
	switch {
	case t.conditional && t.deletes():
		n.Fail("conditional goes without operation: delete and delete_when: a deleted document records no event, so that an older one would bring it back")
	case t.operation == cosmos.Delete && (t.ttl.node != nil || t.deleteWhen.given != nil || t.tombstones):
		n.Fail("ttl and delete_when are for documents that are written: remove them, or operation: delete")
	}
	t.checkPatch(n)
	if mode == "point" {
		t.config.Mode = cosmos.Point
	}
	t.compile()
	return t
}

// documentKeys returns the keys of target.cosmos about what an event does with a document.
func (t *cosmosTarget) documentKeys(operation, withoutKey *string) strictyaml.Keys {
	return strictyaml.Keys{
		"operation":     func(n strictyaml.Node) { n.OneOf(operation, "upsert", "create", "replace", "patch", "delete") },
		"patch":         t.readPatch,
		"delete_when":   t.readDeleteWhen,
		"ttl":           t.readTTL,
		"without_key":   func(n strictyaml.Node) { n.OneOf(withoutKey, "deadletter", "write") },
		"id":            func(n strictyaml.Node) { t.id, _ = readOrigin(n) },
		"partition_key": t.readKey,
	}
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
		t.parts = []keyPart{{origin: from}}
		return
	}
	n.Each(func(name string, n strictyaml.Node) {
		from, ok := readOrigin(n)
		if !ok {
			return
		}
		part := keyPart{origin: from}
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

// readDeleteWhen reads conditions, or tombstone.
func (t *cosmosTarget) readDeleteWhen(n strictyaml.Node) {
	if n.IsMapping() {
		t.deleteWhen.read(n)
		return
	}
	var word string
	n.OneOf(&word, "tombstone")
	t.tombstones = word != ""
}

// readTTL reads a duration, or where the seconds come from.
func (t *cosmosTarget) readTTL(n strictyaml.Node) {
	t.ttl.node, t.ttl.part.property = &n, "ttl"
	var text string
	if !n.Text(&text) {
		return
	}
	if text != "" && text[0] >= '0' && text[0] <= '9' {
		n.DurationIn(&t.ttl.constant, time.Second, maxTTL*time.Second)
		return
	}
	t.ttl.part.origin, _ = readOrigin(n)
}

// maxTTL is Cosmos DB's limit, in seconds.
const maxTTL = 1<<31 - 1

// compile assigns every path into the body its slot.
func (t *cosmosTarget) compile() {
	t.ownID = 0
	paths := []jsonpick.Path{{{Key: "id"}}}
	t.id.pick(&paths)
	parts := []*keyPart{&t.ttl.part}
	for i := range t.parts {
		parts = append(parts, &t.parts[i])
	}
	for _, part := range parts {
		part.origin.pick(&paths)
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

// origins are those that are in no mapping.
func (t *cosmosTarget) origins() []*origin {
	list := []*origin{&t.id, &t.ttl.part.origin}
	for i := range t.parts {
		list = append(list, &t.parts[i].origin)
	}
	return list
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

func (*cosmosTarget) kind() string { return "cosmos" }
func (t *cosmosTarget) mappings() []*mapping {
	if t.patch == nil {
		return t.deleteWhen.mappings()
	}
	return append(t.deleteWhen.mappings(), t.patch)
}

// deletes reports whether events may delete documents.
func (t *cosmosTarget) deletes() bool {
	return t.operation == cosmos.Delete || t.deleteWhen.given != nil || t.tombstones
}

// checkExpiry returns an error if documents have a time to live and the container ignores it.
func (t *cosmosTarget) checkExpiry(ctx context.Context, sink *cosmos.Sink) error {
	if t.ttl.node == nil {
		return nil
	}
	expiry, err := sink.Expiry(ctx)
	if err == nil && !expiry.Enabled {
		err = errors.New("ttl: the container ignores it, so that no document expires: set its Time to Live to On (no default)")
	}
	return err
}

func (t *cosmosTarget) outlet(ctx context.Context, parts *Parts, _ telemetry) (outlet, error) {
	sink, err := t.open(t.ru)
	if err != nil {
		return nil, err
	}
	parts.onClose(sink.Close)
	// Report a wrong account at the start, as for a database.
	if err := cmp.Or(sink.Check(ctx), t.checkExpiry(ctx, sink)); err != nil {
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
	return errors.Join(cmp.Or(sink.Check(ctx), t.checkExpiry(ctx, sink)), sink.Close(ctx))
}
