package formats

import (
	"strings"
	"testing"
)

// benchmarkBoth measures a decoder beside the library's.
func benchmarkBoth(b *testing.B, body []byte, decoders map[string]func([]byte) ([]byte, error)) {
	for _, name := range []string{"sluice", "library"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decoders[name](body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarkAvro(b *testing.B, schema string, body string) {
	ours := mustAvro(b, schema)
	library, err := libraryAvro(schema)
	if err != nil {
		b.Fatal(err)
	}
	benchmarkBoth(b, []byte(body), map[string]func([]byte) ([]byte, error){
		"sluice":  func(body []byte) ([]byte, error) { return ours.decode(body, defaultMaxSize) },
		"library": library.decode,
	})
}

// BenchmarkAvroRecord: an ordinary event, with 12 fields of which some are records and lists.
func BenchmarkAvroRecord(b *testing.B) {
	benchmarkAvro(b, `{"type":"record","name":"Flight","fields":[
	 {"name":"number","type":"string"},{"name":"carrier","type":"string"},{"name":"delay","type":["null","int"]},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
	 {"name":"day","type":{"type":"int","logicalType":"date"}},{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},{"name":"load","type":"double"},
	 {"name":"origin","type":{"type":"record","name":"Place","fields":[{"name":"code","type":"string"},{"name":"city","type":"string"},{"name":"lat","type":"double"}]}},{"name":"target","type":"Place"},
	 {"name":"legs","type":{"type":"array","items":{"type":"record","name":"Leg","fields":[{"name":"miles","type":"long"},{"name":"gate","type":["null","string"]}]}}},
	 {"name":"tags","type":{"type":"map","values":"string"}},{"name":"status","type":{"type":"enum","name":"Status","symbols":["SCHEDULED","DEPARTED"]}}]}`,
		textOf("AA 7")+textOf("American")+long(1)+long(12)+long(1769848200500)+long(20484)+textOf("\x04\xd2")+"\x00\x00\x00\x00\x00\x00\xf8\x3f"+
			textOf("SAN")+textOf("San Diego")+"\x00\x00\x00\x00\x00\x00\x40\x40"+textOf("MUC")+textOf("München")+"\x00\x00\x00\x00\x00\x00\x48\x40"+
			long(2)+long(500)+long(1)+textOf("B7")+long(700)+long(0)+long(0)+long(2)+textOf("class")+textOf("eco")+textOf("band")+textOf("3")+long(0)+long(1))
}

// BenchmarkAvroStrings: long texts, which are copied.
func BenchmarkAvroStrings(b *testing.B) {
	benchmarkAvro(b, `{"type":"array","items":"string"}`, long(50)+strings.Repeat(textOf(strings.Repeat("text of a letter ", 60)), 50)+long(0))
}

// BenchmarkAvroNumbers: a list of numbers.
func BenchmarkAvroNumbers(b *testing.B) {
	benchmarkAvro(b, `{"type":"array","items":"long"}`, long(5000)+strings.Repeat(long(123456789), 5000)+long(0))
}

// BenchmarkAvroRecords: a batch of small records.
func BenchmarkAvroRecords(b *testing.B) {
	benchmarkAvro(b, `{"type":"array","items":{"type":"record","name":"Point","fields":[{"name":"y","type":"int"},{"name":"x","type":"int"},{"name":"name","type":["null","string"]}]}}`,
		long(2000)+strings.Repeat(long(12)+long(-7)+long(1)+textOf("point"), 2000)+long(0))
}

// BenchmarkAvroMap: a map with many entries, in no order.
func BenchmarkAvroMap(b *testing.B) {
	var body strings.Builder
	body.WriteString(long(1000))
	for i := range 1000 {
		body.WriteString(textOf("key"+strings.Repeat("k", i%7)+string(rune('a'+i*7%26))+string(rune('a'+i*3%25))) + long(int64(i)))
	}
	benchmarkAvro(b, `{"type":"map","values":"long"}`, body.String()+long(0))
}

func benchmarkProtobuf(b *testing.B, body []byte) {
	schema := flightSchema(b)
	encoding, _ := Protobuf(schema, "pkg.Flight")
	message := encoding.(protobufEncoding).message
	benchmarkBoth(b, body, map[string]func([]byte) ([]byte, error){
		"sluice":  func(body []byte) ([]byte, error) { return schema.decode(message, body, defaultMaxSize) },
		"library": func(body []byte) ([]byte, error) { return schema.libraryDecode(message, body) },
	})
}

// BenchmarkProtobufMessage: an ordinary event.
func BenchmarkProtobufMessage(b *testing.B) { benchmarkProtobuf(b, flight()) }

// BenchmarkProtobufMessages: a batch of messages.
func BenchmarkProtobufMessages(b *testing.B) {
	var body []byte
	for range 500 {
		body = field(body, 6, field(field(nil, 1, flight()), 2, 500))
	}
	benchmarkProtobuf(b, body)
}

// BenchmarkProtobufTexts: long texts, which are copied.
func BenchmarkProtobufTexts(b *testing.B) {
	var body []byte
	for range 50 {
		body = field(body, 6, field(nil, 1, field(nil, 1, strings.Repeat("text of a letter ", 60))))
	}
	benchmarkProtobuf(b, body)
}
