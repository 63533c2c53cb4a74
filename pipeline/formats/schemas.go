package formats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/avro"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// AvroFrom returns the encoding of bodies in Avro that name the schema of their writer, which is in
// a registry. They are read as schema has them; nil: as their own schema does.
func AvroFrom(r Registry, schema *AvroSchema) Encoding {
	return &avroFrom{r, newSchemas(r, kindAvro, func(s *registered) (*AvroSchema, error) {
		writer, err := s.avro()
		if err != nil {
			return nil, err
		}
		return schema.resolve(writer)
	})}
}

type avroFrom struct {
	Registry
	schemas *schemas[*AvroSchema]
}

func (e *avroFrom) json(ctx context.Context, body []byte, contentType string, limit int) ([]byte, error) {
	id, body, err := e.split(body, contentType)
	if err != nil {
		return nil, err
	}
	s, err := e.schemas.get(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.decode(body, limit)
}

// avro parses a schema after those that it refers to.
func (r *registered) avro() (*AvroSchema, error) {
	var cache avro.SchemaCache
	for _, ref := range r.references {
		if _, err := cache.Parse(withoutInvalid(ref.text), logicalTypes...); err != nil {
			return nil, fmt.Errorf("%s: %w", ref.name, oneLine(err, "avro: "))
		}
	}
	schema, err := cache.Parse(withoutInvalid(r.text), logicalTypes...)
	if err != nil {
		return nil, oneLine(err, "avro: ")
	}
	return newAvroSchema(schema, false)
}

// ProtobufFrom returns the encoding of bodies in Protobuf that name their schema, which is in a
// registry, and the message in it.
func ProtobufFrom(r Registry) Encoding {
	return &protobufFrom{r, newSchemas(r, kindProtobuf, (*registered).protobuf)}
}

type protobufFrom struct {
	Registry
	schemas *schemas[*ProtoSchema]
}

func (e *protobufFrom) json(ctx context.Context, body []byte, contentType string, limit int) ([]byte, error) {
	id, body, err := e.split(body, contentType)
	if err != nil {
		return nil, err
	}
	path, body, err := messagePath(body)
	if err != nil {
		return nil, err
	}
	s, err := e.schemas.get(ctx, id)
	if err != nil {
		return nil, err
	}
	message, err := s.message(path)
	if err != nil {
		return nil, err
	}
	return s.decode(message, body, limit)
}

func (r *registered) protobuf() (*ProtoSchema, error) {
	const name = "schema.proto"
	return compile(name, func(file string) ([]byte, error) {
		if file == name {
			return []byte(r.text), nil
		}
		for _, ref := range r.references {
			if ref.name == file {
				return []byte(ref.text), nil
			}
		}
		return nil, fmt.Errorf("%s is not among its references", file)
	})
}

// JSONFrom returns the encoding of bodies of JSON with the header of a registry, which is removed.
// The registry is not asked for the schema.
func JSONFrom(r Registry) Encoding { return jsonFrom{r} }

type jsonFrom struct{ Registry }

func (e jsonFrom) json(_ context.Context, body []byte, contentType string, limit int) ([]byte, error) {
	_, body, err := e.split(body, contentType)
	if err == nil && len(body) > limit {
		err = tooLarge(limit)
	}
	return body, err
}

// Limits of the schemas of a registry that are kept.
const (
	maxSchemas     = 1000
	maxSchemaTexts = 16 << 20         // their texts, which are much smaller than what is made of them
	forgetAfter    = 10 * time.Second // the answer that a schema does not exist
)

// schemas keeps the schemas of a registry that were needed, compiled. A schema with an id never
// changes. It is safe for concurrent use.
type schemas[T any] struct {
	registry Registry
	kind     schemaKind
	compile  func(*registered) (T, error)

	mu    sync.Mutex
	kept  map[string]*kept[T]
	texts int // bytes of their texts
}

// kept is a schema, or why it cannot be used.
type kept[T any] struct {
	ready   chan struct{} // closed when the rest is set
	value   T
	err     error
	expires time.Time // when it is forgotten; zero: never
	text    int       // how many bytes its text has
}

func newSchemas[T any](r Registry, kind schemaKind, compile func(*registered) (T, error)) *schemas[T] {
	return &schemas[T]{registry: r, kind: kind, compile: compile, kept: map[string]*kept[T]{}}
}

// get returns a schema. The error is an outage, or about the event that names the schema.
func (s *schemas[T]) get(ctx context.Context, id string) (T, error) {
	s.mu.Lock()
	k := s.kept[id]
	if k == nil || k.expired() {
		k = &kept[T]{ready: make(chan struct{})}
		if s.kept[id] != nil {
			s.forget(id)
		}
		s.makeRoom()
		s.kept[id] = k
		s.mu.Unlock()
		s.load(ctx, id, k)
		return k.value, k.err
	}
	s.mu.Unlock()
	select {
	case <-k.ready:
		return k.value, k.err
	case <-ctx.Done():
		var none T
		return none, driver.Outage(context.Cause(ctx))
	}
}

func (k *kept[T]) expired() bool {
	select {
	case <-k.ready:
		return !k.expires.IsZero() && time.Now().After(k.expires)
	default:
		return false
	}
}

// makeRoom forgets a schema if there are too many. The caller holds mu.
func (s *schemas[T]) makeRoom() {
	if len(s.kept) < maxSchemas {
		return
	}
	for id := range s.kept {
		s.forget(id)
		return
	}
}

// forget forgets a schema. The caller holds mu.
func (s *schemas[T]) forget(id string) {
	s.texts -= s.kept[id].text
	delete(s.kept, id)
}

// charge notes the size of a schema, and forgets others if they are too large together.
func (s *schemas[T]) charge(id string, k *kept[T], found *registered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[id] != k { // it has been forgotten
		return
	}
	k.text = found.size()
	s.texts += k.text
	for other := range s.kept {
		if s.texts <= maxSchemaTexts {
			return
		}
		if other != id {
			s.forget(other)
		}
	}
}

// load sets k. An outage is not kept: the next event asks again.
func (s *schemas[T]) load(ctx context.Context, id string, k *kept[T]) {
	defer close(k.ready)
	found, err := s.registry.schema(ctx, id)
	switch {
	case err != nil:
		k.err = err
	case found.kind != s.kind:
		k.err = fmt.Errorf("its schema %s is not of the kind %s, but %.40s", id, s.kind, found.kind)
	default:
		s.charge(id, k, found)
		if k.value, err = s.compile(found); err != nil {
			k.err = fmt.Errorf("its schema %s: %w", id, err)
		}
	}
	if _, unknown := errors.AsType[*unknownSchemaError](err); unknown {
		k.expires = time.Now().Add(forgetAfter)
	}
	if errors.Is(err, sluice.ErrOutage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept[id] == k {
			s.forget(id)
		}
	}
}
