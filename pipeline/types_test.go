package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// typeSample is a value of an event, as JSON, and its text, which the database's own cast takes.
type typeSample struct{ json, text string }

func same(values ...string) (list []typeSample) {
	for _, v := range values {
		list = append(list, typeSample{v, v})
	}
	return list
}

func texts(values ...string) (list []typeSample) {
	for _, v := range values {
		list = append(list, typeSample{quotedJSON(v), v})
	}
	return list
}

func quotedJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String() + `"`
}

// typeSamples has values of each type that a mapping knows.
var typeSamples = map[columnType][]typeSample{
	typeText: texts("", " ", "0", "1", "12", " 2 ", "+1", "-7", "12.5", "1e3", "2147483648", "true", "f", "abc", "größe", "a\\b\tc\r\nd", `\.`, `\N`, "NULL",
		"2026-07-08", "2026-07-08T12:34:56Z", "2026-07-08 12:34:56.789+02", "20260708T123456", "January 8, 1999", "infinity", "12:34:56", "12:34:56+02", "P1Y2M", "1 day",
		"{a,b}", "{1,2}", "{}", "[1,5)", "[2026-07-08,2026-07-09)", "(1,2)", "(1,abc)", "((0,0),(1,1))", "a=>b", "pg_class", "12345.67", "0101", `\x00ff`, `\\`,
		"9b2c2b62-3d0c-4d5c-8a2f-0d4b4a0a7e11", "10.0.0.1", "10.1.0.0/16", "08:00:2b:01:02:03", `{"a": 1}`, "[1]", "<a>b</a>", "0/16B3748", "some", "none", "none,some", "it's",
		strings.Repeat("long ", 20)),
	typeSmallint:  same("0", "1", "-7", "300", "-32768", "32767"),
	typeInteger:   same("0", "1", "2", "12", "-7", "300", "16777217", "2147483647"),
	typeBigint:    same("0", "1", "-7", "16777217", "9007199254740993", "9223372036854775807"),
	typeReal:      {{"1.5", "1.5"}, {"0.1", "0.1"}, {"-12", "-12"}, {"2e30", "2e+30"}, {"16777217", "16777217"}},
	typeDouble:    {{"1.5", "1.5"}, {"0.1", "0.1"}, {"-12", "-12"}, {"2e30", "2e+30"}, {"123456789.125", "123456789.125"}},
	typeNumeric:   {{"12345.67", "12345.67"}, {"0.005", "0.005"}, {"-12", "-12"}, {"12345678901234567890.5", "12345678901234567890.5"}, {"1.10e1", "11.0"}},
	typeBoolean:   same("true", "false"),
	typeTimestamp: {{`"2026-07-08T23:04:05.678901+02:00"`, "2026-07-08 21:04:05.678901"}, {`"2026-07-08T00:00:00Z"`, "2026-07-08 00:00:00"}, {`"1999-01-08T01:02:03Z"`, "1999-01-08 01:02:03"}},
	typeDate:      {{`"2026-07-08"`, "2026-07-08"}, {`"19990108"`, "1999-01-08"}, {`"2026-07-08T00:00:00"`, "2026-07-08"}, {`"0001-01-01"`, "0001-01-01"}, {`"9999-12-31"`, "9999-12-31"}},
	typeBytes:     {{`"AP8="`, "\x00\xff"}, {`"YQ=="`, "a"}},
	typeJSON:      same(`{"a": [1]}`, `[]`, `["a", "b\"c\\d, {e}", "", "null", null]`, `["10.5", 7, true]`, `{"k": "v", "n": 1.50, "\"q": null}`, `["2026-07-08"]`, `[1]`, `"x"`, `12`, `1.0`, `12345678901234567890`, `true`),
}

// typesCount is what became of the values of a differential test.
type typesCount struct{ pairs, refused, stored, rejected, wrong int }

func (c *typesCount) report(t *testing.T, leastPairs, leastStored int) {
	t.Helper()
	t.Logf("%d pairs of column and mapping: %d refused by validate; of the values of the others %d stored, %d refused, %d wrong",
		c.pairs, c.refused, c.stored, c.rejected, c.wrong)
	if c.pairs < leastPairs || c.stored < leastStored {
		t.Errorf("want at least %d pairs and %d values stored", leastPairs, leastStored)
	}
}

// compare counts a value that a column of a kind was given: what was stored must be what the
// database makes of the text by itself, unless it was refused.
func (c *typesCount) compare(t *testing.T, kind string, typ columnType, s typeSample, stored string, err error, own string, ownErr error) {
	t.Helper()
	switch {
	case err != nil:
		c.rejected++
	case ownErr != nil:
		c.wrong++
		t.Errorf("%s of type %s into %s: stored %q, but the database refuses it: %v", s.json, typ, kind, stored, ownErr)
	case stored != own:
		c.wrong++
		t.Errorf("%s of type %s into %s: stored %q, the database's own cast is %q", s.json, typ, kind, stored, own)
	default:
		c.stored++
	}
}

// typedTarget has one column.
func typedTarget(t *testing.T, d *dialect, table string, typ columnType) *tableTarget {
	t.Helper()
	return &tableTarget{rowTarget: rowTarget{dialect: d, mapping: mappingOf(t, fmt.Sprintf("c: {from: body.v, type: %s}", typ))}, table: table}
}

func sampleEvent(s typeSample) *sluice.Event {
	return &sluice.Event{Partition: "0", Body: []byte(`{"v":` + s.json + `}`)}
}
