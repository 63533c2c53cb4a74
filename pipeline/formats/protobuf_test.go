package formats

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/sluice-go/sluice"
)

// checkJSON checks for any body that an encoding makes valid JSON of bounded size, or an error of
// one line.
func checkJSON(t *testing.T, e Encoding, body []byte) {
	const limit = 64 << 10
	out, err := e.json(t.Context(), body, "", limit)
	switch {
	case err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 400):
		t.Errorf("%v", err)
	case err == nil && (len(out) > limit || !json.Valid(out)):
		t.Errorf("%d bytes: %.200s", len(out), out)
	}
}

// write writes files into a directory, which it returns.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const flightProto = `syntax = "proto3";
package pkg;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "common/place.proto";
message Flight {
  string flight_number = 1;
  int32 delay = 2;
  int64 id = 3;
  google.protobuf.Timestamp departed_at = 4;
  common.Place origin = 5;
  repeated Leg legs = 6;
  map<string, double> prices = 7;
  bytes raw = 8;
  optional int32 gate = 9;
  Status status = 10;
  google.protobuf.DoubleValue load = 11;
  oneof way { string by_air = 12; string by_sea = 13; }
  message Leg { Flight flight = 1; uint64 miles = 2; }
  enum Status { SCHEDULED = 0; DEPARTED = 1; }
}
`

const placeProto = "syntax = \"proto3\"; package common; message Place { string code = 1; }"

func flightSchema(t testing.TB) *ProtoSchema {
	t.Helper()
	dir := write(t, map[string]string{"flight.proto": flightProto, "common/place.proto": placeProto})
	s, err := ReadProto(filepath.Join(dir, "flight.proto"), "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// field appends a field of any of Protobuf's three common types.
func field(b []byte, n protowire.Number, v any) []byte {
	switch v := v.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	panic(v)
}

// flight is a message, encoded field by field.
func flight() []byte {
	b := field(nil, 1, "AA 7")
	b = field(b, 2, -3)
	b = field(b, 3, 1<<60)
	b = field(b, 4, field(field(nil, 1, 1769848200), 2, 500_000_000))
	b = field(b, 5, field(nil, 1, "SAN"))
	b = field(b, 6, field(nil, 2, 5))
	b = field(b, 7, append(field(nil, 1, "eco"), "\x11\x00\x00\x00\x00\x00\x00\xf8\x3f"...))
	b = field(b, 8, "\x00\xff")
	b = field(b, 10, 1)
	b = field(b, 13, "")
	return field(b, 99, "of a later version")
}

func TestProtobuf(t *testing.T) {
	s := flightSchema(t)
	for _, c := range []struct {
		message, body string
		want          string
	}{
		{"pkg.Flight", string(flight()), `{"flightNumber":"AA 7","delay":-3,"id":"1152921504606846976","departedAt":"2026-01-31T08:30:00.500Z","origin":{"code":"SAN"},` +
			`"legs":[{"miles":"5"}],"prices":{"eco":1.5},"raw":"AP8=","status":"DEPARTED","bySea":""}`},
		{"pkg.Flight", "", `{"flightNumber":"","delay":0,"id":"0","legs":[],"prices":{},"raw":"","status":"SCHEDULED"}`},
		{"pkg.Flight.Leg", "\x10\x07", `{"miles":"7"}`},
		{"common.Place", "\x0a\x01x", `{"code":"x"}`},
		{"common.Place", "\x0a\x05x", `decode the body: it is not a message common.Place: `},
		{"common.Place", "\x0a\x01\xff", `decode the body: it is not a message common.Place: `},
		{"common.Place", "{}", "decode the body: it is not a message common.Place: "},
		{"common.Place", string(field(nil, 1, strings.Repeat("x", 1000))), `decode the body: it has more than 1000 bytes then, the limit (max_size)`},
		{"pkg.Flight", strings.Repeat(string(field(nil, 6, field(nil, 1, ""))), 20), `decode the body: it has more than 1000 bytes then, the limit (max_size)`},
	} {
		encoding, err := Protobuf(s, c.message)
		if err != nil {
			t.Fatalf("no message %s", c.message)
		}
		out, err := New(&Config{Encoding: encoding, MaxSize: 1000}).Event(t.Context(), &sluice.Event{Body: []byte(c.body), ContentType: "application/x-protobuf"})
		if err != nil {
			if c.want == "" || !strings.HasPrefix(err.Error(), c.want) { // the rest is the library's
				t.Errorf("%q: got  %v\nwant %s", c.body, err, c.want)
			}
			continue
		}
		if got := compact(t, out.Body); got != c.want || out.ContentType != "application/json" {
			t.Errorf("%q: got %s\nwant %s", c.body, got, c.want)
		}
	}
	if _, err := Protobuf(s, "pkg.Flight.Status"); err == nil {
		t.Error("an enum is taken for a message")
	}
	if names := s.messages(); !slices.Contains(names, "pkg.Flight") || !slices.Contains(names, "common.Place") || len(names) != 2 {
		t.Errorf("messages %v", names)
	}
}

// compact removes the spaces that protojson adds, or not, so that nobody depends on them.
func compact(t *testing.T, data []byte) string {
	t.Helper()
	var b strings.Builder
	quoted := false
	for i, c := range data {
		if c == '"' && (i == 0 || data[i-1] != '\\') {
			quoted = !quoted
		}
		if c != ' ' || quoted {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// TestProtobufBounds: a body of 1 MB that is a message of a gigabyte in JSON, or nests too deep,
// fails soon.
func TestProtobufBounds(t *testing.T) {
	schema := flightSchema(t)
	encoding, _ := Protobuf(schema, "pkg.Flight")
	var deep []byte
	for range 2000 {
		deep = field(nil, 6, field(nil, 1, deep))
	}
	many := []byte(strings.Repeat(string(field(nil, 6, field(nil, 1, ""))), 50_000))
	if _, err := encoding.json(t.Context(), many, "", 10<<20); err != nil {
		t.Error(err)
	}
	for name, body := range map[string][]byte{"many": many, "deep": deep} {
		if out, err := encoding.json(t.Context(), body, "", 1<<20); err == nil {
			t.Errorf("%s: %d bytes", name, len(out))
		}
	}
}

// TestDescriptorSet: a descriptor set is read like the files it was made of.
func TestDescriptorSet(t *testing.T) {
	s := flightSchema(t)
	var set descriptorpb.FileDescriptorSet
	for _, name := range []string{"google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "common/place.proto", "flight.proto"} {
		file, err := s.files.FindFileByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	whole, err := proto.Marshal(&set)
	if err != nil {
		t.Fatal(err)
	}
	part, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: set.File[3:]})
	if err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"whole.binpb": string(whole), "part.binpb": string(part), "text.binpb": "syntax = \"proto3\";", "empty.binpb": ""})
	read, err := ReadProto(filepath.Join(dir, "whole.binpb"), "")
	if err != nil {
		t.Fatal(err)
	}
	encoding, _ := Protobuf(read, "pkg.Flight")
	if out, err := encoding.json(t.Context(), flight(), "", 1000); err != nil || !strings.Contains(string(out), "SAN") {
		t.Errorf("%s, %v", out, err)
	}
	for name, want := range map[string]string{
		"part.binpb":  "write the descriptor set with --include_imports",
		"text.binpb":  "not a descriptor set: write one by protoc --include_imports --descriptor_set_out, or name a .proto file",
		"empty.binpb": "not a descriptor set: write one by protoc --include_imports --descriptor_set_out, or name a .proto file",
		"none.binpb":  "no such file or directory",
	} {
		if _, err := ReadProto(filepath.Join(dir, name), ""); err == nil || !strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestProtoMistakes(t *testing.T) {
	dir := write(t, map[string]string{
		"wrong.proto":     "syntax = \"proto3\";\nmessage A { int32 a = ; }\n",
		"unknown.proto":   "syntax = \"proto3\";\nmessage A { B b = 1; }\n",
		"missing.proto":   "syntax = \"proto3\";\nimport \"nowhere.proto\";\n",
		"in/a.proto":      "syntax = \"proto3\";\nimport \"in/b.proto\";\nmessage A { B b = 1; }\n",
		"in/b.proto":      "syntax = \"proto3\";\nmessage B { string c = 1; }\n",
		"confluent.proto": "syntax = \"proto3\";\nimport \"confluent/meta.proto\";\nimport \"confluent/type/decimal.proto\";\nmessage P { confluent.type.Decimal price = 1 [(confluent.field_meta) = {doc: \"x\"}]; }\n",
	})
	for name, want := range map[string]string{
		"wrong.proto":   "wrong.proto:2:23: syntax error: unexpected ';'",
		"unknown.proto": "unknown.proto:2:13: field A.b: unknown type B",
		"missing.proto": "nowhere.proto: no such file or directory",
		"none.proto":    "none.proto: no such file or directory",
		"in/a.proto":    "in/b.proto: no such file or directory",
	} {
		if _, err := ReadProto(filepath.Join(dir, name), ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got  %v\nwant %s", name, err, want)
		}
	}
	for _, name := range []string{"in/a.proto", "confluent.proto"} {
		if _, err := ReadProto(filepath.Join(dir, name), dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := ReadProto(filepath.Join(dir, "in/a.proto"), filepath.Join(dir, "elsewhere")); err == nil || !strings.Contains(err.Error(), "is not below the import path") {
		t.Errorf("got %v", err)
	}
}

// FuzzProtobuf: any body becomes what Protobuf's own implementation makes of it.
func FuzzProtobuf(f *testing.F) {
	encoding := allEncoding(f).(protobufEncoding)
	f.Add(flight())
	for seed := range uint64(50) {
		f.Add((&protoMade{Rand: rand.New(rand.NewPCG(seed, 1)), schema: encoding.schema}).body(nil, encoding.message, 0))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, fits := decodeWithin(t, encoding, body); fits {
			checkProto(t, encoding.schema, encoding.message, body)
		}
	})
}
