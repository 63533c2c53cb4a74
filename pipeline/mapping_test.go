package pipeline

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/jsonscan"
)

// mappingOf reads columns as they stand in a file.
func mappingOf(t testing.TB, columns string) *mapping {
	t.Helper()
	var list []column
	err := strictyaml.Read("p.yaml", []byte(columns), environment(), func(n strictyaml.Node) { list = readColumns(n) })
	if err != nil {
		t.Fatal(err)
	}
	return newMapping("column", list)
}

// One column of a type, and what comes out of it for values in JSON.
func TestConvert(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 30, 0, 123456789, time.UTC)
	long := strings.Repeat("x", 50)
	for _, c := range []struct {
		typ, json string
		want      any // an error is its text
	}{
		{"text", `"SAN"`, "SAN"},
		{"text", `""`, ""},
		{"text", `"a\u00e9\n"`, "aé\n"},
		{"text", `1.10`, "1.10"},
		{"text", `-1e5`, "-1e5"},
		{"text", `true`, "true"},
		{"text", `{"a":1}`, errors.New(`an array or object where a string (the type json takes every value) should be`)},
		{"text", `"a\u0000b"`, errors.New(`contains a NUL character, which a text column cannot store`)},
		{"text", `"\ud800"`, errors.New(`has an escape for half of a character`)},

		{"integer", `12`, int64(12)},
		{"integer", `-0`, int64(0)},
		{"integer", `12.0`, int64(12)},
		{"integer", `1.2e1`, int64(12)},
		{"integer", `120e-1`, int64(12)},
		{"integer", `0e999`, int64(0)},
		{"integer", `"12"`, int64(12)},
		{"integer", `2147483647`, int64(math.MaxInt32)},
		{"integer", `-2147483648`, int64(math.MinInt32)},
		{"integer", `2147483648`, errors.New(`2147483648 is not from -2147483648 to 2147483647`)},
		{"integer", `3.7`, errors.New(`3.7 is not a whole number`)},
		{"integer", `1e-1`, errors.New(`1e-1 is not a whole number`)},
		{"integer", `"3.7"`, errors.New(`"3.7" is not a whole number`)},
		{"integer", `" 12"`, errors.New(`" 12" where a whole number should be`)},
		{"integer", `"+12"`, errors.New(`"+12" where a whole number should be`)},
		{"integer", `"0x1f"`, errors.New(`"0x1f" where a whole number should be`)},
		{"integer", `"1_000"`, errors.New(`"1_000" where a whole number should be`)},
		{"integer", `""`, errors.New(`"" where a whole number should be`)},
		{"integer", `"n/a"`, errors.New(`"n/a" where a whole number should be`)},
		{"integer", `"` + long + `"`, errors.New(`"` + long[:40] + `…" where a whole number should be`)},
		{"integer", `true`, errors.New(`true where a whole number should be`)},
		{"integer", `[1]`, errors.New(`an array or object where a whole number should be`)},

		{"bigint", `9223372036854775807`, int64(math.MaxInt64)},
		{"bigint", `-9.223372036854775808e18`, int64(math.MinInt64)},
		{"bigint", `9223372036854775808`, errors.New(`9223372036854775808 is not from -9223372036854775808 to 9223372036854775807`)},
		{"bigint", `100000000000000000000e-2`, int64(1e18)},
		{"bigint", `1e999999999999`, errors.New(`1e999999999999 is not a whole number`)},

		{"double", `0.1`, 0.1},
		{"double", `"1e3"`, 1000.0},
		{"double", `1e-999`, 0.0},
		{"double", `1e999`, errors.New(`1e999 is out of a double's range`)},
		{"double", `"NaN"`, errors.New(`"NaN" where a number should be`)},

		{"numeric", `1.10`, "1.10"},
		{"numeric", `-1.5e3`, "-1500"},
		{"numeric", `1.23456e2`, "123.456"},
		{"numeric", `12.5e-3`, "0.0125"},
		{"numeric", `"0.5"`, "0.5"},
		{"numeric", `1e1000`, errors.New(`1e1000 is a number of more than 1000 digits`)},
		{"numeric", `"twelve"`, errors.New(`"twelve" where a number should be`)},

		{"boolean", `true`, true},
		{"boolean", `"false"`, false},
		{"boolean", `1`, errors.New(`1 where true or false (format: 1/0, or other words) should be`)},
		{"boolean", `"True"`, true},
		{"boolean, format: 1/0", `1`, true},
		{"boolean, format: 1/0", `"0"`, false},
		{"boolean, format: 1/0", `true`, true},
		{"boolean, format: yes/no", `"NO"`, false},
		{"boolean, format: yes/no", `"y"`, errors.New(`"y" is neither yes nor no`)},

		{"smallint", `32767`, int64(32767)},
		{"smallint", `32768`, errors.New(`32768 is not from -32768 to 32767`)},
		{"real", `0.1`, 0.1},
		{"real", `1e39`, errors.New(`1e39 is out of a real's range`)},

		{"date", `"2026-01-31"`, "2026-01-31"},
		{"date", `"2026-01-31T00:00:00"`, "2026-01-31"},
		{"date", `"2026-01-31T08:30:00Z"`, errors.New(`"2026-01-31T08:30:00Z" has a time of day, which a date would lose: use the type timestamp`)},
		{"date", `20484`, errors.New(`20484 where a date such as 2006-01-02 should be`)},
		{"date, format: unix_days", `20484`, "2026-01-31"},
		{"date, format: dd.MM.yyyy", `"31.01.2026"`, "2026-01-31"},
		{"date, format: yyyyMMdd", `20260131`, "2026-01-31"},

		{"timestamp", `"2026-01-31T09:30:00.123456789+01:00"`, at},
		{"timestamp", `"2026-01-31 08:30:00.123456789+00"`, at},
		{"timestamp", `"2026-01-31 08:30"`, errors.New(`"2026-01-31 08:30" has no offset from UTC: set zone: UTC, or the zone of the sender`)},
		{"timestamp", `"soon"`, errors.New(`"soon" is not a time such as 2006-01-02T15:04:05Z: set format`)},
		{"timestamp", `1769848200`, errors.New(`1769848200 is a number where a time should be: format: unix would make it 2026-01-31T08:30:00Z`)},
		{"timestamp", `17`, errors.New(`17 where a time such as 2006-01-02T15:04:05Z should be`)},
		{"timestamp, format: unix", `1769848200.123456789`, at},
		{"timestamp, format: unix", `"1769848200.123456789"`, at},
		{"timestamp, format: unix", `1.769848200123456789e9`, at},
		{"timestamp, format: unix_ms", `1769848200`, time.UnixMilli(1769848200).UTC()},
		{"timestamp, format: unix", `true`, errors.New(`true is not a number of the format unix`)},
		{"timestamp, format: unix", `[1]`, errors.New(`an array or object where a time such as 2006-01-02T15:04:05Z should be`)},
		{"timestamp, zone: Europe/Berlin", `"2026-01-31 09:30:00.123456789"`, at},
		{"timestamp, zone: Europe/Berlin", `"2026-01-31T08:30:00.123456789Z"`, at},
		{"timestamp, format: dd.MM.yyyy HH:mm:ss.SSSSSSSSS, zone: Europe/Berlin", `"31.01.2026 09:30:00.123456789"`, at},

		{"bytes", `"AAECAw=="`, []byte{0, 1, 2, 3}},
		{"bytes", `"AAECAw"`, errors.New(`"AAECAw" is not base64`)},
		{"bytes", `7`, errors.New(`7 where base64 should be`)},

		{"bytes, format: hex", `"00010203"`, []byte{0, 1, 2, 3}},
		{"bytes, format: hex", `"0x00"`, errors.New(`"0x00" is not hex`)},
		{"bytes, format: base64url", `"-_8"`, []byte{0xfb, 0xff}},
		{"bytes, format: text", `"-_8"`, []byte("-_8")},

		{"json", `{"a": [1, 2.50]}`, `{"a": [1, 2.50]}`},
		{"json", `"text"`, `"text"`},
		{"json", `7`, `7`},
	} {
		m := mappingOf(t, "v: {from: body.v, type: "+c.typ+"}")
		rows, err := m.rows([]*sluice.Event{{Body: []byte(`{"v":` + c.json + `}`)}}, nil)
		want, failure := c.want.(error)
		switch {
		case failure && err == nil:
			t.Errorf("%s of %s: %v, want an error", c.typ, c.json, rows[0][0])
		case failure:
			if text := "event 0 of the batch: column v: body.v: " + want.Error(); err.Error() != text {
				t.Errorf("%s of %s:\ngot  %s\nwant %s", c.typ, c.json, err, text)
			}
		case err != nil:
			t.Errorf("%s of %s: %v", c.typ, c.json, err)
		case !reflect.DeepEqual(rows[0][0], c.want):
			t.Errorf("%s of %s: %#v, want %#v", c.typ, c.json, rows[0][0], c.want)
		}
	}
}

func TestMappingFields(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 30, 0, 0, time.UTC)
	full := &sluice.Event{
		Partition: "3", Sequence: 42, Offset: "4200", Enqueued: at.In(time.FixedZone("", 3600)),
		Key: "LAX", MessageID: "m1", CorrelationID: "c1", ContentType: "application/json",
		Properties: map[string]any{
			"s": "7", "i": int32(-7), "u": uint64(math.MaxUint64), "f": 1.5, "f32": float32(0.1), "b": true, "raw": []byte{0xff}, "t": at, "nil": nil,
			"dotted.name": "d", "nan": math.NaN(), "odd": struct{}{},
		},
		Body: []byte(`{"a":{"b":[1,{"c d":"x"}]}}`),
	}
	bare := &sluice.Event{Partition: "0", Body: []byte(`null`)}
	for _, c := range []struct {
		column     string
		full, bare any // an error is its text
	}{
		{`partition`, "3", "0"},
		{`{from: partition, type: integer}`, int64(3), int64(0)},
		{`sequence`, int64(42), int64(0)},
		{`{from: sequence, type: text}`, "42", "0"},
		{`{from: sequence, type: numeric}`, "42", "0"},
		{`offset`, "4200", nil},
		{`{from: offset, type: bigint}`, int64(4200), nil},
		{`enqueued`, at, errors.New("is missing")},
		{`{from: enqueued, type: text}`, "2026-01-31T08:30:00Z", errors.New("is missing")},
		{`key`, "LAX", nil},
		{`{from: key, required: true}`, "LAX", errors.New("is missing")},
		{`{from: key, default: none}`, "LAX", "none"},
		{`{from: key, type: integer}`, errors.New(`"LAX" where a whole number should be`), nil},
		{`message_id`, "m1", nil},
		{`correlation_id`, "c1", nil},
		{`content_type`, "application/json", nil},
		{`body`, full.Body, []byte("null")},
		{`{from: body, type: text}`, string(full.Body), "null"},
		{`{from: body, type: json}`, string(full.Body), errors.New("is null")},
		{`{from: body, type: json, required: false}`, string(full.Body), nil},
		{`{from: 'body.a.b[0]', type: bigint}`, int64(1), errors.New("is missing")},
		{`'body.a.b[1]["c d"]'`, "x", errors.New("is missing")},
		{`{from: body.a.x, type: integer, required: false}`, nil, nil},
		{`{from: body.a.x, type: integer, default: "-1"}`, int64(-1), int64(-1)},
		{`{from: body.a.x, type: timestamp, default: 2026-01-31T08:30:00Z}`, at, at},
		{`{from: body.a.x, type: json, default: '[]'}`, "[]", "[]"},
		{`{from: body.a.x, type: boolean, default: false}`, false, false},
		{`properties.s`, "7", errors.New("is missing")},
		{`{from: properties.s, type: integer}`, int64(7), errors.New("is missing")},
		{`{from: properties.i, type: integer, required: false}`, int64(-7), nil},
		{`{from: properties.u, type: numeric, default: 0}`, "18446744073709551615", "0"},
		{`{from: properties.u, type: bigint, default: 0}`, errors.New("18446744073709551615 is not from -9223372036854775808 to 9223372036854775807"), int64(0)},
		{`{from: properties.f, type: double, default: 0}`, 1.5, 0.0},
		{`{from: properties.f32, type: text, default: 0}`, "0.1", "0"},
		{`{from: properties.b, type: boolean, required: false}`, true, nil},
		{`{from: properties.raw, type: bytes, required: false}`, []byte{0xff}, nil},
		{`{from: properties.raw, type: text, required: false}`, errors.New("is not UTF-8 (the type bytes takes every value)"), nil},
		{`{from: properties.t, type: timestamp, required: false}`, at, nil},
		{`{from: properties.nil}`, errors.New("is null"), errors.New("is missing")},
		{`{from: properties.nil, default: x}`, "x", "x"},
		{`properties.dotted.name`, "d", errors.New("is missing")},
		{`{from: properties.nan, required: false}`, errors.New("is NaN, which is not a number"), nil},
		{`{from: properties.odd, required: false}`, errors.New("has the type struct {}, which no column can store"), nil},
	} {
		m := mappingOf(t, "v: "+c.column)
		for e, want := range map[*sluice.Event]any{full: c.full, bare: c.bare} {
			rows, err := m.rows([]*sluice.Event{e}, nil)
			if failure, ok := want.(error); ok {
				if err == nil || !strings.HasSuffix(err.Error(), ": "+failure.Error()) {
					t.Errorf("%s: %v, want %v", c.column, err, failure)
				}
			} else if err != nil {
				t.Errorf("%s: %v", c.column, err)
			} else if got := rows[0][0]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %#v, want %#v", c.column, got, want)
			}
		}
	}
}

// All events that cannot be mapped are reported, as rejections. TestTimesInAnotherUnit: the time of
// a Kafka record is the producer's, in milliseconds as it should be.
func TestTimesInAnotherUnit(t *testing.T) {
	for unit, n := range map[string]int64{
		"microseconds": 1769848200500000, "nanoseconds": 1769848200500000000, "ticks of 100 ns": 17698482005000000, "another unit": 639054450005000000,
	} {
		at := time.UnixMilli(n).UTC()
		for _, o := range []origin{{field: fieldEnqueued}, {field: fieldCreated}} {
			for _, typ := range []columnType{typeTimestamp, typeText} {
				c := column{origin: o, typ: typ}
				_, err := c.cell(&sluice.Event{Enqueued: at, Created: at}, nil, false)
				want := fmt.Sprintf("the record's time is %d ms, after the year 9999: the producer wrote %s in place of milliseconds: correct it there, or leave this column out", n, unit)
				if err == nil || err.Error() != want {
					t.Errorf("%s as %s: got  %v\nwant %s", o, typ, err, want)
				}
			}
		}
	}
}

func TestMappingBlames(t *testing.T) {
	m := mappingOf(t, "n: {from: body.n, type: integer}")
	var events []*sluice.Event
	for _, body := range []string{`{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"n":4}`, `{`} {
		events = append(events, &sluice.Event{Body: []byte(body)})
	}
	const want = `event 2 of the batch: column n: body.n: "x" where a whole number should be
event 4 of the batch: body: not JSON at byte 1: the end where a key in double quotes should be`
	_, err := m.rows(events, nil)
	if err == nil || err.Error() != want || !errors.Is(err, sluice.ErrRejected) {
		t.Errorf("got %v, want %s", err, want)
	}
	row := m.each(events, boxed, nil)
	for i := range 2 {
		if got, err := row(i); err != nil || fmt.Sprint(got) != fmt.Sprintf("[%d]", i+1) {
			t.Errorf("row %d: %v, %v", i, got, err)
		}
	}
	if _, err := row(2); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	rows, err := m.rows(events[:2], nil)
	if err != nil || fmt.Sprint(rows) != "[[1] [2]]" {
		t.Errorf("rows %v, %v", rows, err)
	}
}

// A body is not parsed as JSON if no column needs it.
func TestMappingWithoutJSON(t *testing.T) {
	if _, err := mappingOf(t, "body: body\nkey: key").rows([]*sluice.Event{{Body: []byte("{")}}, nil); err != nil {
		t.Error(err)
	}
}

// FuzzNumbers compares exact conversions with those of math/big.
func FuzzNumbers(f *testing.F) {
	for _, text := range []string{"0", "-0.0", "12.50e1", "1e-7", "9223372036854775807", "0.001e3", "100e-2", "-12.5E+2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		v := scalar{kind: number, text: []byte(literal)}
		if !jsonscan.IsNumber(v.text) {
			return
		}
		decimal, err := typeNumeric.convert(v)
		whole, wholeErr := typeBigint.convert(v)
		if err != nil {
			if wholeErr == nil && whole.integer != 0 {
				t.Fatalf("%s: bigint %v, but %v", literal, whole.integer, err)
			}
			return
		}
		exact, ok := new(big.Rat).SetString(literal)
		got, ok2 := new(big.Rat).SetString(decimal.text)
		if !ok || !ok2 || exact.Cmp(got) != 0 || strings.ContainsAny(decimal.text, "eE") {
			t.Fatalf("%s became %s", literal, decimal.text)
		}
		if fits := exact.IsInt() && exact.Num().IsInt64(); fits != (wholeErr == nil) {
			t.Fatalf("%s: bigint %v, %v", literal, whole.integer, wholeErr)
		}
		if wholeErr == nil && exact.Num().Int64() != whole.integer {
			t.Fatalf("%s: bigint %v", literal, whole.integer)
		}
	})
}

func BenchmarkMapping(b *testing.B) {
	flight := `{"date":"2001/01/14 21:55","delay":310,"distance":480,"origin":"SAN","destination":"SMF"}`
	columns := `
hub_partition: partition
sequence_number: sequence
date: {from: body.date}
delay: {from: body.delay, type: integer}
distance: {from: body.distance, type: integer}
origin: {from: body.origin}
destination: {from: body.destination}`
	for name, body := range map[string]string{
		"flight": flight,
		"1KB":    flight[:len(flight)-1] + `,"note":"` + strings.Repeat("All work and no play. ", 42) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			m := mappingOf(b, columns)
			events := make([]*sluice.Event, 1000)
			for i := range events {
				events[i] = &sluice.Event{Partition: "0", Sequence: int64(i), Body: []byte(body)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.rows(events, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
