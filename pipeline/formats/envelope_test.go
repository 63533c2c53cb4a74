package formats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// opened returns what an envelope has.
func opened(t *testing.T, envelope Envelope, body string) (string, error) {
	t.Helper()
	out, err := New(&Config{Envelope: envelope}).Event(t.Context(), &sluice.Event{Body: []byte(body)})
	if err != nil {
		return "", err
	}
	return string(out.Body), nil
}

func TestLogicalTypes(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`"type":"int32"`, `7`, `7`},
		{`"type":"string","name":"io.debezium.data.Uuid"`, `"9b2c"`, `"9b2c"`},
		{`"type":"int32","name":"io.debezium.time.Date"`, `20642`, `"2026-07-08"`},
		{`"type":"int32","name":"org.apache.kafka.connect.data.Date"`, `-1`, `"1969-12-31"`},
		{`"type":"int32","name":"io.debezium.time.Date"`, `99999999`, "error: not a Date of the years"},
		{`"type":"int64","name":"io.debezium.time.Timestamp"`, `1783544645678`, `"2026-07-08T21:04:05.678Z"`},
		{`"type":"int64","name":"org.apache.kafka.connect.data.Timestamp"`, `1783544645678`, `"2026-07-08T21:04:05.678Z"`},
		{`"type":"int64","name":"io.debezium.time.MicroTimestamp"`, `1783544645678901`, `"2026-07-08T21:04:05.678901Z"`},
		{`"type":"int64","name":"io.debezium.time.MicroTimestamp"`, `-1`, `"1969-12-31T23:59:59.999999Z"`},
		{`"type":"int64","name":"io.debezium.time.MicroTimestamp"`, `9223372036825200000`, "error: not a MicroTimestamp"}, // infinity
		{`"type":"int64","name":"io.debezium.time.NanoTimestamp"`, `1783544645678901234`, `"2026-07-08T21:04:05.678901234Z"`},
		{`"type":"string","name":"io.debezium.time.ZonedTimestamp"`, `"2026-07-08T21:04:05Z"`, `"2026-07-08T21:04:05Z"`},
		{`"type":"int32","name":"io.debezium.time.Time"`, `75845678`, `"21:04:05.678"`},
		{`"type":"int64","name":"io.debezium.time.MicroTime"`, `75845000000`, `"21:04:05"`},
		{`"type":"int64","name":"io.debezium.time.MicroTime"`, `86400000000`, `"24:00:00"`},
		{`"type":"int64","name":"io.debezium.time.MicroTime"`, `-1`, "error: not a MicroTime"},
		{`"type":"int64","name":"io.debezium.time.MicroDuration"`, `-1500000`, `"PT-1.5S"`},
		{`"type":"int64","name":"io.debezium.time.MicroDuration"`, `3600000000`, `"PT3600S"`},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}`, `"AMgQ"`, `512.16`},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}`, `"/w=="`, `-0.01`},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0"}`, `"AA=="`, `0`},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"-2"}`, `"Bw=="`, `700`},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{}`, `"AA=="`, "error: not a decimal number"},
		{`"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"99999"}`, `"AA=="`, "error: more than 20000 digits"},
		{`"type":"struct","name":"io.debezium.data.VariableScaleDecimal","fields":[]`, `{"scale":1,"value":"Dw=="}`, `1.5`},
		{`"type":"struct","name":"io.debezium.data.geometry.Point","fields":[]`, `{"x":1.5,"y":-2,"wkb":"AQ==","srid":null}`, `"(1.5,-2)"`},
		{`"type":"string","name":"io.debezium.data.Json"`, `"{\"a\": [1]}"`, `{"a": [1]}`},
		{`"type":"string","name":"io.debezium.data.Json"`, `"{"`, "error: its text is not JSON"},
		{`"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"10"}`, `"BQI="`, `"1000000101"`},
		{`"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"10"}`, `"BQ=="`, `"0000000101"`},
		{`"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"8"}`, `"BQI="`, "error: not a bit string"},
		{`"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"99999"}`, `"BQI="`, "error: not a bit string"},
		{`"type":"array","items":{"type":"int32","name":"io.debezium.time.Date"}`, `[0,null,1]`, `["1970-01-01",null,"1970-01-02"]`},
		{`"type":"map","values":{"type":"int32","name":"io.debezium.time.Date"}`, `{"a":0}`, `{"a":"1970-01-01"}`},
		{`"type":"struct","fields":[{"field":"d","type":"int32","name":"io.debezium.time.Date"}]`, `{"x":1,"d":0}`, `{"x":1,"d":"1970-01-01"}`},
		{`"type":"int32","name":"io.debezium.time.Date"`, `null`, `null`},
	} {
		body := `{"schema":{"type":"struct","fields":[{"field":"v",` + c.schema + `}]},"payload":{"v":` + c.value + `}}`
		got, err := opened(t, Connect, body)
		why, fails := strings.CutPrefix(c.want, "error: ")
		switch {
		case fails && (err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "field v")):
			t.Errorf("%s of %s = %s, %v, want %s", c.value, c.schema, got, err, why)
		case !fails && (err != nil || got != `{"v":`+c.want+`}`):
			t.Errorf("%s of %s = %s, %v, want %s", c.value, c.schema, got, err, c.want)
		}
	}
}

// A number's scale must not make megabytes of a few bytes.
func TestDecimalsAreBounded(t *testing.T) {
	body := `{"schema":{"type":"array","items":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"-20000"}}},"payload":[` +
		strings.TrimSuffix(strings.Repeat(`"Bw==",`, 5000), ",") + `]}`
	_, err := New(&Config{Envelope: Connect, MaxSize: 1 << 20}).Event(t.Context(), &sluice.Event{Body: []byte(body)})
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("5,000 numbers of 20,000 digits: %v", err)
	}
}

func TestDebezium(t *testing.T) {
	const source = `"source":{"version":"3.0","connector":"postgresql","ts_ms":5,"schema":"public","table":"t","lsn":9},"ts_ms":6`
	const more = `"__ts_ms":6,"__source_ts_ms":5,"__schema":"public","__table":"t","__lsn":9`
	schema := `"schema":{"type":"struct","name":"e","fields":[{"field":"before","type":"struct","name":"t.Value","fields":[{"field":"id","type":"int32"},{"field":"d","type":"int32","name":"io.debezium.time.Date"}]},` +
		`{"field":"after","type":"struct","name":"t.Value","fields":[{"field":"id","type":"int32"},{"field":"d","type":"int32","name":"io.debezium.time.Date"}]}]}`
	for payload, want := range map[string]string{
		`{"before":null,"after":{"id":1,"d":0},"op":"c",` + source + `}`:                                              `{"__op":"c","__deleted":false,` + more + `,"id":1,"d":%s}`,
		`{"before":{"id":1,"d":9},"after":{"id":1,"d":0},"op":"u",` + source + `}`:                                    `{"__op":"u","__deleted":false,` + more + `,"id":1,"d":%s}`,
		`{"before":{"id":1,"d":0},"after":null,"op":"d",` + source + `}`:                                              `{"__op":"d","__deleted":true,` + more + `,"id":1,"d":%s}`,
		`{"before":null,"after":{"id":1,"d":0},"op":"r","source":null}`:                                               `{"__op":"r","__deleted":false,"id":1,"d":%s}`,
		`{"before":null,"after":null,"op":"t",` + source + `}`:                                                        `{"__op":"t","__deleted":false,` + more + `}`,
		`{"after":{"id":1,"big":"__debezium_unavailable_value","l":["__debezium_unavailable_value"],"d":0},"op":"u"}`: `{"__op":"u","__deleted":false,"id":1,"d":%s}`,
		`{"before":{"id":1,"__deleted":false,"__op":"t","__lsn":1,"d":0},"op":"d"}`:                                   `{"__op":"d","__deleted":true,"id":1,"d":%s}`, // columns of such names
	} {
		date := strings.Contains(want, "%s")
		for body, d := range map[string]string{payload: `0`, `{"payload":` + payload + `}`: `0`, `{"schema":null,"payload":` + payload + `}`: `0`, `{` + schema + `,"payload":` + payload + `}`: `"1970-01-01"`} {
			expected := want
			if date {
				expected = fmt.Sprintf(want, d)
			}
			if got, err := opened(t, Debezium, body); err != nil || got != expected {
				t.Errorf("%s\ngot  %s, %v\nwant %s", body, got, err, expected)
			}
		}
	}
	for _, body := range []string{"\xef\xbb\xbf" + `{"op":"t"}`, "\xff\xfe{\x00\"\x00o\x00p\x00\"\x00:\x00\"\x00t\x00\"\x00}\x00"} {
		if got, err := opened(t, Debezium, body); err != nil || got != `{"__op":"t","__deleted":false}` {
			t.Errorf("%q = %s, %v", body, got, err)
		}
	}
	for body, want := range map[string]string{
		`{"id":1}`:                 "no change event of Debezium: it has no op",
		`{"op":"x","after":{}}`:    `op "x": known are`,
		`{"op":"m"}`:               "a message of the database",
		`{"op":"d","before":null}`: "REPLICA IDENTITY FULL",
		`{"op":"c"}`:               "no row in after",
		`{"op":"c","after":{"big":"__debezium_unavailable_value"}}`: `field "big": Debezium does not know its value`,
		`[1]`:    "no JSON object",
		`{"op":`: "not JSON",
		`{"schema":7,"payload":{"op":"c","after":{}}}`: "none of Kafka Connect",
	} {
		if got, err := opened(t, Debezium, body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %s, %v, want %s", body, got, err, want)
		}
	}
}

// A tombstone of Debezium stands for nothing. Another null is a value.
func TestSkipsNulls(t *testing.T) {
	for d, want := range map[*Decoder]bool{
		New(&Config{Envelope: Debezium, NullBodies: true}): true, New(&Config{Envelope: Connect, NullBodies: true}): false,
		New(&Config{Envelope: Debezium}): false, nil: false,
	} {
		if d.SkipsNulls() != want {
			t.Errorf("%+v skips a null: %v", d, !want)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"schema":{"type":"struct","fields":[{"field":"v","type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}]},"payload":{"v":"AMgQ"}}`))
	f.Add([]byte(`{"op":"u","after":{"id":1},"source":{"table":"t"}}`))
	decoders := []*Decoder{New(&Config{Envelope: Connect, MaxSize: 4096}), New(&Config{Envelope: Debezium, MaxSize: 4096})}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range decoders {
			out, err := d.Event(t.Context(), &sluice.Event{Body: body})
			if err == nil && len(out.Body) > 4096 && len(out.Body) > len(body) {
				t.Errorf("%d bytes of %d", len(out.Body), len(body))
			}
		}
	})
}
