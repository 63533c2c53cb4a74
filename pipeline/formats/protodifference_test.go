package formats

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// libraryDecode decodes a message as Protobuf's own implementation does, which the decoder of this
// package is compared with.
func (s *ProtoSchema) libraryDecode(descriptor protoreflect.MessageDescriptor, body []byte) (out []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errLibraryPanics
		}
	}()
	m := dynamicpb.NewMessage(descriptor)
	read := proto.UnmarshalOptions{DiscardUnknown: true, Resolver: s.types, RecursionLimit: maxMessageDepth}
	if err := read.Unmarshal(body, m); err != nil {
		return nil, err
	}
	write := protojson.MarshalOptions{EmitDefaultValues: true, Resolver: s.types}
	return write.Marshal(m)
}

// errLibraryPanics: see TestProtobufKeyTwice.
var errLibraryPanics = errors.New("the library panics")

const allProto3 = `syntax = "proto3";
package all;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "old.proto";
message All {
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7; sint64 s64 = 8;
  fixed32 f32 = 9; fixed64 f64 = 10; sfixed32 sf32 = 11; sfixed64 sf64 = 12; bool b = 13; string text = 14; bytes raw = 15; Color color = 16;
  optional int32 maybe = 17; optional string maybe_text = 100; All self = 18; All other = 1000;
  oneof one { string one_text = 19; All one_all = 20; int32 one_int = 21; google.protobuf.Empty nothing = 22; }
  oneof two { bool two_bool = 23; Color two_color = 24 [json_name = "2 <color>"]; }
  repeated int32 ints = 25; repeated sint64 sints = 26 [packed = false]; repeated double doubles = 27; repeated float floats = 28; repeated bool bools = 29;
  repeated string texts = 30; repeated bytes raws = 31; repeated Color colors = 32; repeated All alls = 33; repeated fixed32 fixed = 34;
  map<string, string> m_text = 35; map<int32, All> m_all = 36; map<bool, int64> m_bool = 37; map<uint64, Color> m_color = 38; map<sfixed32, bytes> m_raw = 39;
  map<string, google.protobuf.Value> m_value = 40; map<sint64, double> m_double = 41; map<fixed32, google.protobuf.Timestamp> m_at = 42;
  google.protobuf.Timestamp at = 43; google.protobuf.Duration took = 44; google.protobuf.Any any = 45; google.protobuf.Struct struct = 46; google.protobuf.Value value = 47;
  google.protobuf.ListValue list = 48; google.protobuf.FieldMask mask = 49; google.protobuf.NullValue null = 50; repeated google.protobuf.NullValue nulls = 51;
  google.protobuf.StringValue w_text = 52; google.protobuf.Int64Value w_i64 = 53; google.protobuf.BytesValue w_raw = 54; google.protobuf.FloatValue w_f = 55; google.protobuf.BoolValue w_b = 56;
  old.Old old = 57; repeated google.protobuf.Any anys = 58; repeated old.Old olds = 59; google.protobuf.Empty empty = 60;
}
enum Color { option allow_alias = true; RED = 0; GREEN = 1; ALSO_GREEN = 1; BLUE = -2; }
`

const oldProto2 = `syntax = "proto2";
package old;
message Old {
  optional int32 i = 1 [default = 7]; optional string text = 2; repeated int32 ints = 3; repeated int32 packed = 4 [packed = true];
  optional group Part = 5 { optional string name = 1; optional Old old = 2; }
  repeated group Parts = 6 { required int32 n = 1; }
  optional Kind kind = 7 [default = B]; optional Needs needs = 8; map<string, Kind> kinds = 9; repeated string texts = 10;
  extensions 100 to 200;
  enum Kind { A = 3; B = 4; }
  message Needs { required string name = 1; extend Old { optional Needs more = 102; } }
}
extend Old { optional string ext_text = 100; repeated int32 ext_ints = 101; }
`

func allSchema(t testing.TB) *ProtoSchema {
	t.Helper()
	s, err := ReadProto(filepath.Join(write(t, map[string]string{"all.proto": allProto3, "old.proto": oldProto2}), "all.proto"), "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// protoMade generates bodies.
type protoMade struct {
	*rand.Rand
	schema *ProtoSchema
	spent  int
}

func (g *protoMade) oneIn(n int) bool { return g.IntN(n) == 0 }

// body appends fields of a message, in any order and number.
func (g *protoMade) body(out []byte, m protoreflect.MessageDescriptor, depth int) []byte {
	count := g.IntN(7)
	if depth > 6 {
		count = g.IntN(2)
	}
	if m.FullName().Parent() == "google.protobuf" {
		count = 1 + g.IntN(3)
	}
	for range count {
		if g.spent++; g.spent > 300 || depth > 20 || m.Fields().Len() == 0 {
			break
		}
		fd := m.Fields().Get(g.IntN(m.Fields().Len()))
		if m.ExtensionRanges().Len() > 0 && g.oneIn(4) {
			if x, err := g.schema.types.FindExtensionByNumber(m.FullName(), protowire.Number(100+g.IntN(3))); err == nil {
				fd = x.TypeDescriptor()
			}
		}
		switch {
		case g.oneIn(60): // not a field, or of another type
			out = field(out, protowire.Number(1+g.IntN(70)), []any{7, "x", []byte{8, 1}}[g.IntN(3)])
		case fd.IsMap():
			out = protowire.AppendBytes(protowire.AppendTag(out, fd.Number(), protowire.BytesType), g.entry(fd, depth))
		default:
			out = g.field(out, fd, depth)
		}
	}
	return out
}

func (g *protoMade) entry(fd protoreflect.FieldDescriptor, depth int) (out []byte) {
	for range 1 + g.IntN(3) {
		if g.oneIn(2) {
			out = g.field(out, fd.MapKey(), depth+1)
		}
		if !g.oneIn(4) {
			out = g.field(out, fd.MapValue(), depth+1)
		}
	}
	return out
}

// field appends a field that is no map.
func (g *protoMade) field(out []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	switch fd.Kind() {
	case protoreflect.StringKind:
		texts := []string{"", "a", "b", "é<&>\u2028", "\"\\\n\x01\x7f", "some_path.to_it", "type.googleapis.com/all.All", "type.googleapis.com/google.protobuf.Duration", "old.Old", "x"}
		if g.oneIn(100) {
			texts = []string{"\xff", "none/here", "_", "A"}
		}
		return field(out, fd.Number(), texts[g.IntN(len(texts))])
	case protoreflect.BytesKind:
		b := make([]byte, g.IntN(5))
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		if fd.FullName() == "google.protobuf.Any.value" {
			b = nil
			if names := []protoreflect.FullName{"all.All", "google.protobuf.Duration", "old.Old"}; depth < 5 {
				found, _ := g.schema.files.FindDescriptorByName(names[g.IntN(3)])
				b = g.body(nil, found.(protoreflect.MessageDescriptor), depth+2)
			}
		}
		return field(out, fd.Number(), b)
	case protoreflect.MessageKind:
		return field(out, fd.Number(), g.body(nil, fd.Message(), depth+1))
	case protoreflect.GroupKind:
		out = protowire.AppendTag(out, fd.Number(), protowire.StartGroupType)
		return protowire.AppendTag(g.body(out, fd.Message(), depth+1), fd.Number(), protowire.EndGroupType)
	}
	if fd.IsList() && g.oneIn(2) {
		var packed []byte
		for range g.IntN(4) {
			packed = g.number(packed, fd)
		}
		return field(out, fd.Number(), packed)
	}
	return g.number(protowire.AppendTag(out, fd.Number(), wireTypes[fd.Kind()]), fd)
}

func (g *protoMade) number(out []byte, fd protoreflect.FieldDescriptor) []byte {
	switch wireTypes[fd.Kind()] {
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(out, []uint32{0, math.Float32bits(1.5), math.Float32bits(1e-7), math.Float32bits(1e22), math.Float32bits(float32(math.NaN())), g.Uint32(), 1 << 31}[g.IntN(7)])
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(out, []uint64{0, math.Float64bits(1.5), math.Float64bits(1e-7), math.Float64bits(-1e22), math.Float64bits(math.Inf(-1)), g.Uint64(), 1 << 63}[g.IntN(7)])
	}
	return protowire.AppendVarint(out, []uint64{0, 1, 2, 3, 4, math.MaxUint64, math.MaxUint64 - 1, 1 << 31, 1 << 32, uint64(g.IntN(1e9)), uint64(g.IntN(1000)), g.Uint64()}[g.IntN(12)])
}

// checkProto compares what a body becomes, and reports whether it becomes anything.
func checkProto(t *testing.T, s *ProtoSchema, m protoreflect.MessageDescriptor, body []byte) bool {
	t.Helper()
	want, wantErr := s.libraryDecode(m, body)
	got, err := s.decode(m, body, 64<<20)
	if wantErr == errLibraryPanics {
		return false
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q\nours %v\nlibrary %v", body, err, wantErr)
	}
	if err != nil {
		if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Fatalf("%v", err)
		}
		return false
	}
	var one bytes.Buffer
	if err := json.Compact(&one, want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, one.Bytes()) {
		t.Fatalf("%q\ngot  %s\nwant %s", body, got, one.Bytes())
	}
	return true
}

// TestProtobufAsLibrary: generated bodies become what Protobuf's own implementation makes of them.
func TestProtobufAsLibrary(t *testing.T) {
	count := 20_000
	if text := os.Getenv("SLUICE_PROTOBUF_BODIES"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := allSchema(t)
	found, err := s.files.FindDescriptorByName("all.All")
	if err != nil {
		t.Fatal(err)
	}
	decoded := 0
	for seed := range count {
		g := &protoMade{Rand: rand.New(rand.NewPCG(uint64(seed), 2)), schema: s}
		body := g.body(nil, found.(protoreflect.MessageDescriptor), 0)
		if g.oneIn(4) {
			body = (&avroMade{Rand: g.Rand}).damage(body)
		}
		if checkProto(t, s, found.(protoreflect.MessageDescriptor), body) {
			decoded++
		}
	}
	t.Logf("%d bodies, of which %d have JSON", count, decoded)
	if decoded < count/3 {
		t.Error("most of what is generated is refused")
	}
}

// TestProtobufKeyTwice: an entry of a map has its key again, with another wire type, which is
// skipped. Protobuf's own implementation panics.
func TestProtobufKeyTwice(t *testing.T) {
	entry := field(field(nil, 1, "a"), 1, 7)
	out, err := allEncoding(t).json(t.Context(), field(nil, 35, entry), "", 10000)
	if err != nil || !strings.Contains(string(out), `"mText":{"a":""}`) {
		t.Errorf("%s, %v", out, err)
	}
}

func allEncoding(t testing.TB) Encoding {
	encoding, err := Protobuf(allSchema(t), "all.All")
	if err != nil {
		t.Fatal("no message")
	}
	return encoding
}
