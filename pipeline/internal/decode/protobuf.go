package decode

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// ProtoSchema is a set of files of Protobuf.
type ProtoSchema struct {
	files *protoregistry.Files
	main  protoreflect.FileDescriptor // whose messages a header counts; nil for a descriptor set
	types *dynamicpb.Types
	sizes sync.Map // from protoreflect.FullName to int: see defaultsOf
}

// Messages returns the names of the messages that are not within others.
func (s *ProtoSchema) Messages() []string {
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

// Protobuf returns the encoding of bodies that are a message, without a header. The name is that of the
// message with its package. It returns false if there is no such message.
func Protobuf(schema *ProtoSchema, message string) (Encoding, bool) {
	found, err := schema.files.FindDescriptorByName(protoreflect.FullName(message))
	descriptor, ok := found.(protoreflect.MessageDescriptor)
	if err != nil || !ok {
		return nil, false
	}
	return protobufEncoding{schema, descriptor}, true
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

// decode returns the message in body as JSON, as protojson has it, with fields that have their
// default value.
func (s *ProtoSchema) decode(descriptor protoreflect.MessageDescriptor, body []byte, limit int) ([]byte, error) {
	m := dynamicpb.NewMessage(descriptor)
	read := proto.UnmarshalOptions{DiscardUnknown: true, Resolver: s.types, RecursionLimit: maxMessageDepth}
	if err := read.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("it is not a message %s: %w", descriptor.FullName(), oneLine(err, "proto: "))
	}
	if room := limit; !s.fits(m, &room) {
		return nil, tooLarge(limit)
	}
	// No field may be missing in JSON because its value is 0: it would be for columns too.
	write := protojson.MarshalOptions{EmitDefaultValues: true, Resolver: s.types}
	out, err := write.Marshal(m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the message %s has no JSON: %w", descriptor.FullName(), oneLine(err, "proto: "))
	case len(out) > limit:
		return nil, tooLarge(limit)
	}
	return out, nil
}

// fits reports whether the names of the fields of a message, and of the messages in it, have room in JSON.
// Two bytes may be a message with hundreds of fields that all have their default value.
func (s *ProtoSchema) fits(m protoreflect.Message, room *int) bool {
	if *room -= s.defaultsOf(m.Descriptor()); *room < 0 {
		return false
	}
	ok := true
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					ok = s.fits(v.Message(), room)
					return ok
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				if ok = s.fits(v.List().Get(i).Message(), room); !ok {
					break
				}
			}
		default:
			ok = s.fits(v.Message(), room)
		}
		return ok
	})
	return ok
}

// defaultsOf returns how many bytes of JSON the fields of a message take at least that are written
// although they are not set.
func (s *ProtoSchema) defaultsOf(descriptor protoreflect.MessageDescriptor) int {
	if known, ok := s.sizes.Load(descriptor.FullName()); ok {
		return known.(int)
	}
	size := len("{}")
	for i := range descriptor.Fields().Len() {
		if field := descriptor.Fields().Get(i); !field.HasPresence() {
			size += len(field.JSONName()) + len(`"":0,`)
		}
	}
	s.sizes.Store(descriptor.FullName(), size)
	return size
}

// message returns the message that a path of indexes leads to: into the file, and then into messages. The
// entries of maps do not count, as in Confluent's client for Java.
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
