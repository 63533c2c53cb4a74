package formats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// long encodes an int or long as Avro's specification has it.
func long(n int64) string { return string(binary.AppendVarint(nil, n)) }

// textOf encodes a string or bytes.
func textOf(s string) string { return long(int64(len(s))) + s }

func mustAvro(t testing.TB, text string) *AvroSchema {
	t.Helper()
	s, err := ParseAvro(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAvro(t *testing.T) {
	le64 := func(f float64) string { return string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))) }
	le32 := func(f float32) string { return string(binary.LittleEndian.AppendUint32(nil, math.Float32bits(f))) }
	for _, c := range []struct{ schema, body, want string }{
		// the example of the specification
		{`{"type":"record","name":"test","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}`, "\x36\x06foo", `{"a":27,"b":"foo"}`},
		{`{"type":"record","name":"test","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}`, "\x36\x06fo", `decode the body: it does not fit the schema: field b: it ends within a value (string)`},
		{`{"type":"record","name":"test","fields":[{"name":"a","type":{"type":"record","name":"in","fields":[{"name":"b","type":"string"}]}}]}`, long(-5), `decode the body: it does not fit the schema: field a.b: invalid negative string length -5`},
		{`"null"`, "", `null`},
		{`"boolean"`, "\x01", `true`},
		{`"int"`, long(-5), `-5`},
		{`"long"`, long(math.MinInt64), `-9223372036854775808`},
		{`"float"`, le32(0.1), `0.1`},
		{`"double"`, le64(1e300), `1e+300`},
		{`"double"`, le64(math.NaN()), `"NaN"`},
		{`"double"`, le64(math.Inf(-1)), `"-Infinity"`},
		{`"string"`, textOf("é\"\n"), `"é\"\n"`},
		{`"bytes"`, textOf("\x00\xff"), `"AP8="`},
		{`{"type":"fixed","name":"f","size":3}`, "\x00\xff\x01", `"AP8B"`},
		{`{"type":"enum","name":"e","symbols":["A","B"]}`, long(1), `"B"`},
		{`{"type":"array","items":"int"}`, long(2) + long(1) + long(2) + long(-1) + long(1) + long(3) + long(0), `[1,2,3]`},
		{`{"type":"map","values":"int"}`, long(2) + textOf("b") + long(1) + textOf("a") + long(2) + long(0), `{"a":2,"b":1}`},
		// unions
		{`["null","string"]`, long(0), `null`},
		{`["null","string"]`, long(1) + textOf("x"), `"x"`},
		{`["int",{"type":"record","name":"r","fields":[{"name":"a","type":["null","long"]}]}]`, long(1) + long(1) + long(7), `{"a":7}`},
		{`[{"type":"int","logicalType":"date"},"string"]`, long(0) + long(1), `"1970-01-02"`},
		// logical types that are invalid: the underlying type counts
		{`{"type":"bytes","logicalType":"decimal","precision":64,"scale":127}`, textOf("\x04\xd2"), `"BNI="`},
		{`{"type":"bytes","logicalType":"decimal","scale":2}`, textOf("\x04\xd2"), `"BNI="`},
		{`{"type":"bytes","logicalType":"decimal"}`, textOf("\x04\xd2"), `"BNI="`},
		{`{"type":"bytes","logicalType":"decimal","precision":0}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"decimal","precision":-3,"scale":-4}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":-1}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"decimal","precision":"9","scale":2}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"decimal","precision":9.5}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":"x"}`, textOf("\x04"), `"BA=="`},
		{`{"type":"fixed","name":"d","size":2,"logicalType":"decimal","precision":5}`, "\x04\xd2", `"BNI="`},
		{`{"type":"fixed","name":"d","size":2,"logicalType":"decimal","precision":4}`, "\x04\xd2", `1234`},
		{`{"type":"string","logicalType":"decimal","precision":9,"scale":2}`, textOf("12.3"), `"12.3"`},
		{`{"type":"long","logicalType":"decimal","precision":9,"scale":2}`, long(1234), `1234`},
		{`{"type":"string","logicalType":"date"}`, textOf("2026-01-31"), `"2026-01-31"`},
		{`{"type":"long","logicalType":"date"}`, long(20484), `20484`},
		{`{"type":"long","logicalType":"time-millis"}`, long(5), `5`},
		{`{"type":"int","logicalType":"time-micros"}`, long(5), `5`},
		{`{"type":"string","logicalType":"timestamp-millis"}`, textOf("now"), `"now"`},
		{`{"type":"int","logicalType":"timestamp-millis"}`, long(7), `7`},
		{`{"type":"double","logicalType":"timestamp-micros"}`, le64(1.5), `1.5`},
		{`{"type":"int","logicalType":"timestamp-nanos"}`, long(7), `7`},
		{`{"type":"string","logicalType":"local-timestamp-millis"}`, textOf("now"), `"now"`},
		{`{"type":"int","logicalType":"local-timestamp-micros"}`, long(7), `7`},
		{`{"type":"bytes","logicalType":"local-timestamp-nanos"}`, textOf("\x04"), `"BA=="`},
		{`{"type":"bytes","logicalType":"uuid"}`, textOf("\x04"), `"BA=="`},
		{`{"type":"fixed","name":"u","size":2,"logicalType":"uuid"}`, "\x04\xd2", `"BNI="`},
		{`{"type":"bytes","logicalType":"duration"}`, textOf("\x04"), `"BA=="`},
		{`{"type":"fixed","name":"d","size":2,"logicalType":"duration"}`, "\x04\xd2", `"BNI="`},
		{`{"type":"int","logicalType":7}`, long(5), `5`},
		{`{"type":"int","logicalType":"unheard-of"}`, long(5), `5`},
		{`{"type":"array","items":{"type":"string","logicalType":"date"},"logicalType":"date"}`, long(1) + textOf("x") + long(0), `["x"]`},
		{`["null",{"type":"map","values":{"type":"bytes","logicalType":"decimal"}}]`, long(1) + long(1) + textOf("k") + textOf("\x04") + long(0), `{"k":"BA=="}`},
		{`{"type":"record","name":"r","fields":[{"name":"a","type":"string","logicalType":"date"},{"name":"b","type":["null","int"],"logicalType":"date"},{"name":"c","type":["null","bytes"],"default":null,"logicalType":"decimal"},{"name":"logicalType","type":{"type":"enum","name":"e","symbols":["decimal"],"default":"decimal"}}]}`,
			textOf("x") + long(1) + long(1) + long(1) + textOf("\x04") + long(0), `{"a":"x","b":"1970-01-02","c":"BA==","logicalType":"decimal"}`},
		// logical types
		{`{"type":"int","logicalType":"date"}`, long(20484), `"2026-01-31"`},
		{`{"type":"int","logicalType":"date"}`, long(-1), `"1969-12-31"`},
		{`{"type":"int","logicalType":"time-millis"}`, long(30600500), `"08:30:00.5"`},
		{`{"type":"long","logicalType":"time-micros"}`, long(86399999999), `"23:59:59.999999"`},
		{`{"type":"long","logicalType":"timestamp-millis"}`, long(1769848200500), `"2026-01-31T08:30:00.5Z"`},
		{`{"type":"long","logicalType":"timestamp-micros"}`, long(1769848200000001), `"2026-01-31T08:30:00.000001Z"`},
		{`{"type":"long","logicalType":"timestamp-nanos"}`, long(-1), `"1969-12-31T23:59:59.999999999Z"`},
		{`{"type":"long","logicalType":"local-timestamp-millis"}`, long(1769848200500), `"2026-01-31T08:30:00.5"`},
		{`{"type":"long","logicalType":"local-timestamp-micros"}`, long(1769848200000001), `"2026-01-31T08:30:00.000001"`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, textOf("\x04\xd2"), `12.34`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, textOf("\x04\xce"), `12.30`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, textOf("\xff"), `-0.01`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, textOf("\x00\xff"), `2.55`},
		{`{"type":"bytes","logicalType":"decimal","precision":9}`, textOf("\x80\x00"), `-32768`},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, textOf(""), `0.00`},
		{`{"type":"fixed","name":"d","size":4,"logicalType":"decimal","precision":9,"scale":3}`, "\xff\xff\xff\xfe", `-0.002`},
		{`{"type":"string","logicalType":"uuid"}`, textOf("00010203-0405-0607-0809-0a0b0c0d0e0f"), `"00010203-0405-0607-0809-0a0b0c0d0e0f"`},
		{`{"type":"fixed","size":16,"name":"u","logicalType":"uuid"}`, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f", `"00010203-0405-0607-0809-0a0b0c0d0e0f"`},
		{`{"type":"fixed","size":12,"name":"u","logicalType":"duration"}`, "\x01\x00\x00\x00\x02\x00\x00\x00\xdc\x05\x00\x00", `"P1M2DT1.500S"`},
		{`{"type":"string","logicalType":"unheard-of"}`, textOf("x"), `"x"`},
		// what does not fit
		{`"long"`, long(1) + "x", `decode the body: it does not fit the schema: 1 bytes follow the value`},
		{`"string"`, textOf("\xff"), `decode the body: a text is not UTF-8`},
		{`{"type":"long","logicalType":"timestamp-millis"}`, long(math.MaxInt64), `decode the body: it does not fit the schema: a time is not in the years 0 to 9999`},
		{`{"type":"int","logicalType":"time-millis"}`, long(86400000), `decode the body: it does not fit the schema: a time of day is not from 00:00 to 23:59:59.999999`},
		{`{"type":"bytes","logicalType":"decimal","precision":9}`, textOf(strings.Repeat("x", maxDecimal+1)), `decode the body: it does not fit the schema: a decimal has 513 bytes: at most 512`},
		{`"string"`, textOf(strings.Repeat("x", 1000)), `decode the body: it has more than 1000 bytes then, the limit (max_size)`},
		{`{"type":"array","items":{"type":"record","name":"r","fields":[{"name":"` + strings.Repeat("n", 500) + `","type":"null"}]}}`, long(1000) + long(0), `decode the body: it has more than 1000 bytes then, the limit (max_size)`},
	} {
		schema, err := ParseAvro(c.schema)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		out, err := New(&Config{Encoding: Avro(schema), MaxSize: 1000}).Event(t.Context(), &sluice.Event{Body: []byte(c.body), ContentType: "avro/binary"})
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("%s: got  %v\nwant %s", c.schema, err, c.want)
			}
			continue
		}
		if string(out.Body) != c.want || out.ContentType != "application/json" {
			t.Errorf("%s: got %s, %s, want %s", c.schema, out.Body, out.ContentType, c.want)
		}
	}
}

// TestAvroBounds: bodies that announce more than they have, or nest deeper than anybody needs, fail
// soon.
func TestAvroBounds(t *testing.T) {
	list := `{"type":"record","name":"list","fields":[{"name":"next","type":["null","list"]}]}`
	for _, c := range []struct{ schema, body string }{
		{`"bytes"`, long(math.MaxInt64)},
		{`{"type":"array","items":"int"}`, long(math.MaxInt64)},
		{`{"type":"array","items":"null"}`, long(math.MaxInt64)},
		{`{"type":"array","items":"null"}`, long(math.MinInt64) + long(0)},
		{`{"type":"map","values":"null"}`, long(math.MaxInt64)},
		{`["null"]`, long(5)},
		{`{"type":"enum","name":"e","symbols":["A"]}`, long(-1)},
		{`"int"`, strings.Repeat("\xff", 20)},
		{list, strings.Repeat(long(1), 1<<20)},
	} {
		if out, err := Avro(mustAvro(t, c.schema)).json(t.Context(), []byte(c.body), "", 1<<20); err == nil {
			t.Errorf("%s: got %.100s", c.schema, out)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%s: %v", c.schema, err)
		}
	}
	if out, err := Avro(mustAvro(t, list)).json(t.Context(), []byte(long(1)+long(1)+long(0)), "", 1000); string(out) != `{"next":{"next":{"next":null}}}` {
		t.Errorf("%s, %v", out, err)
	}
}

// TestAvroItemsWithoutBytes: an array may have 4,096 items that take no bytes, whether it is read
// or skipped.
func TestAvroItemsWithoutBytes(t *testing.T) {
	const written = `{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"null"}},{"name":"b","type":"int"}]}`
	reads := mustAvro(t, written)
	skips, err := mustAvro(t, `{"type":"record","name":"r","fields":[{"name":"b","type":"int"}]}`).resolve(reads)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []*AvroSchema{reads, skips} {
		for body, ok := range map[string]bool{
			long(4096) + long(0) + long(1):             true,
			long(4095) + long(1) + long(0) + long(1):   true,
			long(4097) + long(0) + long(1):             false,
			long(4095) + long(2) + long(0) + long(1):   false,
			long(-4097) + long(0) + long(0) + long(1):  false,
			long(math.MaxInt64) + long(0) + long(1):    false,
			long(1) + long(math.MaxInt64) + long(1):    false,
			long(math.MinInt64) + long(0) + long(1):    false,
			long(-4096) + long(0) + long(0) + long(-5): true,
		} {
			if out, err := schema.decode([]byte(body), 1<<20); (err == nil) != ok {
				t.Errorf("%q: %.50s, %v", body, out, err)
			}
		}
	}
}

// TestAvroResolution: what one schema has written is read as another one has it.
func TestAvroResolution(t *testing.T) {
	record := func(fields string) *AvroSchema {
		return mustAvro(t, `{"type":"record","name":"Flight","fields":[`+fields+`]}`)
	}
	writer := record(`{"name":"gate","type":"string"},{"name":"delay","type":"int"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}`)
	body := textOf("B7") + long(5) + long(1769848200500)
	for _, c := range []struct {
		reader *AvroSchema
		want   string
	}{
		{nil, `{"at":"2026-01-31T08:30:00.5Z","delay":5,"gate":"B7"}`},
		{record(`{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"delay","type":"long"},{"name":"date","type":{"type":"int","logicalType":"date"},"default":1}`),
			`{"at":"2026-01-31T08:30:00.5Z","date":"1970-01-02","delay":5}`},
		{record(`{"name":"late","aliases":["delay"],"type":["null","double"]}`), `{"late":5}`},
	} {
		s, err := c.reader.resolve(writer)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.decode([]byte(body), 1000); string(out) != c.want || err != nil {
			t.Errorf("got %s, %v, want %s", out, err, c.want)
		}
	}
	_, err := record(`{"name":"delay","type":"string"}`).resolve(writer)
	if err == nil || !strings.HasPrefix(err.Error(), "the schema that it was written with does not resolve to the schema of the file: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// everything is a schema with each type.
const everything = `{"type":"record","name":"all","fields":[
 {"name":"i","type":"int"},{"name":"l","type":"long"},{"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"s","type":"string"},{"name":"b","type":"bytes"},
 {"name":"u","type":["null","all",{"type":"map","values":["all","string"]},{"type":"array","items":"null"}]},
 {"name":"a","type":{"type":"array","items":{"type":"array","items":"boolean"}}},{"name":"e","type":{"type":"enum","name":"en","symbols":["A","B"]}},
 {"name":"date","type":{"type":"int","logicalType":"date"}},{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"t","type":{"type":"long","logicalType":"time-micros"}},
 {"name":"n","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":3}},{"name":"x","type":{"type":"fixed","name":"fx","size":2}},
 {"name":"id","type":{"type":"fixed","name":"uid","size":16,"logicalType":"uuid"}},{"name":"p","type":{"type":"fixed","name":"dur","size":12,"logicalType":"duration"}}]}`

func FuzzAvro(f *testing.F) {
	schema := mustAvro(f, everything)
	f.Add([]byte(long(1) + long(2) + "\x00\x00\x80\x3f" + "\x00\x00\x00\x00\x00\x00\xf0\x3f" + textOf("s") + textOf("b") + long(0) + long(1) + long(1) + "\x01" + long(0) + long(0) +
		long(1) + long(20484) + long(1769848200500) + long(5) + textOf("\x04\xd2") + "ab" + strings.Repeat("u", 16) + strings.Repeat("\x01", 12)))
	library, err := libraryAvro(everything)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) { (bothAvro{schema, library}).fuzz(t, body) })
}

// FuzzAvroSchemas: any body of a generated schema, and of one that reads it, becomes what the
// library makes of it.
func FuzzAvroSchemas(f *testing.F) {
	for seed := range uint64(50) {
		g := &avroMade{Rand: rand.New(rand.NewPCG(seed, 1))}
		f.Add(seed, g.body(nil, g.aType(4), 0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, body []byte) {
		g := &avroMade{Rand: rand.New(rand.NewPCG(seed, 1))}
		made := g.aType(4)
		writer, ok := parseBoth(t, made.text())
		if !ok {
			return
		}
		writer.fuzz(t, body)
		reader, ok := parseBoth(t, g.reader(made, map[*madeType]*madeType{}).text())
		if !ok {
			return
		}
		if resolved, ok := reader.resolve(t, writer); ok {
			resolved.fuzz(t, body)
		}
	})
}

// FuzzAvroText: no text of a schema fails otherwise than with an error.
func FuzzAvroText(f *testing.F) {
	f.Add(everything, []byte("\x02"))
	f.Add(`{"type":"record","name":"n.r","fields":[{"name":"a","type":["null","n.r",{"type":"fixed","name":".f","size":0}],"logicalType":"decimal","precision":3}]}`, []byte("\x02"))
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		if both, ok := parseBoth(t, text); ok {
			both.fuzz(t, body)
		}
	})
}
