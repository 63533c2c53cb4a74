package formats

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/sluice-go/sluice/internal/humanize"
)

// ProtoSchema is a set of files of Protobuf.
type ProtoSchema struct {
	files *protoregistry.Files
	main  protoreflect.FileDescriptor // whose messages a header counts; nil for a descriptor set
	types *dynamicpb.Types

	mu         sync.Mutex
	plans      map[protoreflect.FullName]*protoMessage
	extensions map[protoreflect.FullName][]protoreflect.FieldDescriptor // by what they extend
}

// messages returns the names of the messages that are not within others.
func (s *ProtoSchema) messages() []string {
	var names []string
	s.files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if file.Package() != "google.protobuf" {
			for i := range file.Messages().Len() {
				names = append(names, string(file.Messages().Get(i).FullName()))
			}
		}
		return true
	})
	return names
}

// Protobuf returns the encoding of bodies that are a message, without a header. The name is that of
// the message with its package; a schema without it is an error.
func Protobuf(schema *ProtoSchema, message string) (Encoding, error) {
	found, err := schema.files.FindDescriptorByName(protoreflect.FullName(message))
	if descriptor, ok := found.(protoreflect.MessageDescriptor); ok && err == nil {
		return protobufEncoding{schema, descriptor}, nil
	}
	names := schema.messages()
	slices.Sort(names)
	if near := humanize.Nearest(message, names); near != "" {
		return nil, fmt.Errorf("%q is not a message of the schema, did you mean %s?", message, near)
	}
	const most = 10
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return nil, fmt.Errorf("%q is not a message of the schema: it has %s", message, strings.Join(names, ", "))
}

type protobufEncoding struct {
	schema  *ProtoSchema
	message protoreflect.MessageDescriptor
}

func (protobufEncoding) check(context.Context) error { return nil }

func (e protobufEncoding) json(_ context.Context, body []byte, _ string, limit int) ([]byte, error) {
	return e.schema.decode(e.message, body, limit)
}

// maxMessageDepth is how deep messages may nest, as in Protobuf's implementations in C++ and Java.
const maxMessageDepth = 100

// decode returns the message in body as JSON of at most limit bytes, as protojson has it, with
// fields that have their default value: none may be missing because its value is 0, or it would be
// for columns.
func (s *ProtoSchema) decode(descriptor protoreflect.MessageDescriptor, body []byte, limit int) ([]byte, error) {
	if len(body) > math.MaxInt32 {
		return nil, fmt.Errorf("it has %d bytes, more than are supported", len(body))
	}
	m := s.plan(descriptor)
	if err := m.check(body, 1); err != nil {
		return nil, fmt.Errorf("it is not a message %s: %w", m.name, oneLine(err, ""))
	}
	w := protoWalks.Get().(*protoWalk)
	w.jsonWriter = jsonWriter{limit: limit, plain: true, out: make([]byte, 0, min(limit, 2*len(body)+64))}
	w.schema, w.in, w.whole, w.anys = s, body[:len(body):len(body)], true, 0
	w.marks = w.marks[:0]
	err := w.message(m, wholeBody)
	out := w.out
	w.schema, w.in, w.out = nil, nil, nil
	const most = 64 << 10 // what is kept for the next body
	if cap(w.marks) <= most/4 {
		protoWalks.Put(w)
	}
	switch {
	case err == errTooLarge:
		return nil, tooLarge(limit)
	case err != nil:
		return nil, fmt.Errorf("the message %s has no JSON: %w", m.name, oneLine(err, ""))
	}
	return fitted(out), nil
}

// message returns the message that a path of indexes leads to: into the file, and then into
// messages. The entries of maps do not count, as in Confluent's client for Java.
func (s *ProtoSchema) message(path []int) (protoreflect.MessageDescriptor, error) {
	var found protoreflect.MessageDescriptor
	messages := s.main.Messages()
	for _, index := range path {
		found = nil
		for i := range messages.Len() {
			if m := messages.Get(i); m.IsMapEntry() {
				continue
			} else if index == 0 {
				found = m
				break
			}
			index--
		}
		if found == nil {
			return nil, fmt.Errorf("its header names message %v, which its schema does not have", path)
		}
		messages = found.Messages()
	}
	return found, nil
}
