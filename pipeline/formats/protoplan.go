package formats

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoMessage says how a message becomes JSON.
type protoMessage struct {
	name     protoreflect.FullName
	known    knownMessage  // which one of Protobuf's own it is
	refused  bool          // it is a message set, or not what its name says, and has no JSON
	fields   []*protoField // in the order of their declaration, then the extensions by name
	byNumber map[protowire.Number]*protoField
	low      []*protoField // those with a low number, by number: most are
	oneofs   int
}

// protoField is a field of a message, or the key or value of a map.
type protoField struct {
	protoreflect.FieldDescriptor
	index    int    // among the fields of the message
	key      string // the name as JSON, and a colon
	kind     protoreflect.Kind
	wire     protowire.Type
	list     bool
	packable bool // a list whose values may be in one field
	presence bool // it is not in JSON if it is not in the body
	required bool
	oneof    int // the oneof it is in; -1: none
	utf8     bool
	null     bool // an enum whose value is null
	message  *protoMessage
	entry    *[2]*protoField // of a map: key and value
	text     string          // the name of the field, for errors
}

// lowNumbers is below which the fields of a message are found without a map.
const lowNumbers = 64

// plan returns how a message becomes JSON.
func (s *ProtoSchema) plan(descriptor protoreflect.MessageDescriptor) *protoMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plans == nil {
		s.plans = map[protoreflect.FullName]*protoMessage{}
		s.extensions = map[protoreflect.FullName][]protoreflect.FieldDescriptor{}
		s.files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
			s.addExtensions(file.Extensions())
			s.addNested(file.Messages())
			return true
		})
	}
	return s.planned(descriptor)
}

// addNested notes the extensions that are declared in messages.
func (s *ProtoSchema) addNested(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		s.addExtensions(messages.Get(i).Extensions())
		s.addNested(messages.Get(i).Messages())
	}
}

func (s *ProtoSchema) addExtensions(extensions protoreflect.ExtensionDescriptors) {
	for i := range extensions.Len() {
		extended := extensions.Get(i).ContainingMessage().FullName()
		s.extensions[extended] = append(s.extensions[extended], extensions.Get(i))
	}
}

// planned is plan for a caller that holds mu.
func (s *ProtoSchema) planned(descriptor protoreflect.MessageDescriptor) *protoMessage {
	name := descriptor.FullName()
	if m := s.plans[name]; m != nil {
		return m
	}
	m := &protoMessage{name: name, known: knownOf(descriptor), byNumber: map[protowire.Number]*protoField{}, low: make([]*protoField, lowNumbers),
		oneofs: descriptor.Oneofs().Len()}
	s.plans[name] = m
	if set, ok := descriptor.(interface{ IsMessageSet() bool }); ok {
		m.refused = set.IsMessageSet()
	}
	m.refused = m.refused || !m.known.fits(descriptor.Fields())
	extensions := s.extensions[name]
	slices.SortFunc(extensions, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	for i := range descriptor.Fields().Len() {
		s.addField(m, descriptor.Fields().Get(i))
	}
	for _, extension := range extensions {
		s.addField(m, extension)
		m.fields[len(m.fields)-1].presence = true
	}
	return m
}

func (s *ProtoSchema) addField(m *protoMessage, descriptor protoreflect.FieldDescriptor) {
	f := s.field(descriptor)
	f.index = len(m.fields)
	m.fields = append(m.fields, f)
	m.byNumber[descriptor.Number()] = f
	if descriptor.Number() < lowNumbers {
		m.low[descriptor.Number()] = f
	}
}

// field returns how a field becomes JSON. The caller holds mu.
func (s *ProtoSchema) field(d protoreflect.FieldDescriptor) *protoField {
	name := jsonWriter{limit: math.MaxInt, plain: true}
	if err := name.text([]byte(d.JSONName())); err != nil { // it has room
		panic(err)
	}
	f := &protoField{FieldDescriptor: d, key: string(name.out) + ":", kind: d.Kind(), wire: wireTypes[d.Kind()], list: d.IsList(), presence: d.HasPresence(),
		required: d.Cardinality() == protoreflect.Required, oneof: -1, utf8: enforcesUTF8(d), text: string(d.FullName())}
	f.packable = f.list && f.wire != protowire.BytesType && f.wire != protowire.StartGroupType
	if oneof := d.ContainingOneof(); oneof != nil {
		f.oneof = oneof.Index()
	}
	if d.Enum() != nil {
		f.null = d.Enum().FullName() == "google.protobuf.NullValue"
	}
	switch {
	case d.IsMap():
		f.entry = &[2]*protoField{s.field(d.MapKey()), s.field(d.MapValue())}
	case d.Message() != nil:
		f.message = s.planned(d.Message())
	}
	return f
}

// wireTypes are how the values of the kinds are in a body.
var wireTypes = map[protoreflect.Kind]protowire.Type{
	protoreflect.BoolKind: protowire.VarintType, protoreflect.EnumKind: protowire.VarintType,
	protoreflect.Int32Kind: protowire.VarintType, protoreflect.Sint32Kind: protowire.VarintType, protoreflect.Uint32Kind: protowire.VarintType,
	protoreflect.Int64Kind: protowire.VarintType, protoreflect.Sint64Kind: protowire.VarintType, protoreflect.Uint64Kind: protowire.VarintType,
	protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.Fixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType,
	protoreflect.MessageKind: protowire.BytesType, protoreflect.GroupKind: protowire.StartGroupType,
}

// enforcesUTF8 reports whether a text that is not UTF-8 makes the whole message invalid.
func enforcesUTF8(d protoreflect.FieldDescriptor) bool {
	if d.Syntax() == protoreflect.Editions {
		if of, ok := d.(interface{ EnforceUTF8() bool }); ok {
			return of.EnforceUTF8()
		}
	}
	return d.Syntax() == protoreflect.Proto3
}

// find returns the field with a number, or nil.
func (m *protoMessage) find(number protowire.Number) *protoField {
	if number < lowNumbers {
		return m.low[number]
	}
	return m.byNumber[number]
}

// knownMessage is one of Protobuf's own messages that have a JSON of their own.
type knownMessage uint8

const (
	knownNone knownMessage = iota
	knownAny
	knownTimestamp
	knownDuration
	knownWrapper
	knownStruct
	knownList
	knownValue
	knownMask
)

// knownOf returns which of Protobuf's own messages a message is.
func knownOf(d protoreflect.MessageDescriptor) knownMessage {
	name, own := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	if !own {
		return knownNone
	}
	switch name {
	case "Any":
		return knownAny
	case "Timestamp":
		return knownTimestamp
	case "Duration":
		return knownDuration
	case "BoolValue", "Int32Value", "Int64Value", "UInt32Value", "UInt64Value", "FloatValue", "DoubleValue", "StringValue", "BytesValue":
		return knownWrapper
	case "Struct":
		return knownStruct
	case "ListValue":
		return knownList
	case "Value":
		return knownValue
	case "FieldMask":
		return knownMask
	}
	return knownNone
}

// fits reports whether a message has the fields that one of Protobuf's own has: a schema may
// declare another one with its name.
func (k knownMessage) fits(fields protoreflect.FieldDescriptors) bool {
	is := func(number protowire.Number, list bool, kinds ...protoreflect.Kind) bool {
		f := fields.ByNumber(number)
		return f != nil && f.IsList() == list && f.IsMap() == (k == knownStruct) && f.HasPresence() == (f.ContainingOneof() != nil) &&
			(len(kinds) == 0 || slices.Contains(kinds, f.Kind()))
	}
	switch k {
	case knownAny:
		return is(1, false, protoreflect.StringKind) && is(2, false, protoreflect.BytesKind)
	case knownTimestamp, knownDuration:
		return is(1, false, protoreflect.Int64Kind) && is(2, false, protoreflect.Int32Kind)
	case knownWrapper, knownStruct:
		return is(1, false)
	case knownList:
		return is(1, true)
	case knownMask:
		return is(1, true, protoreflect.StringKind)
	}
	return true
}
