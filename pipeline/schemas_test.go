package pipeline

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// avroFlight is a record of testdata/flight.avsc.
func avroFlight(number string, delay int64) string {
	long := func(n int64) string { return string(protowire.AppendVarint(nil, protowire.EncodeZigZag(n))) }
	text := func(s string) string { return long(int64(len(s))) + s }
	return text(number) + long(1) + long(delay) + long(20484) + long(1769848200500) + text("\x04\xce") + text("00010203-0405-0607-0809-0a0b0c0d0e0f") + text("\x00\xff")
}

// protoFlight is a message of testdata/flight.proto.
func protoFlight(number string, delay uint64) string {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), number)
	if delay > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), delay)
	}
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), string(protowire.AppendVarint([]byte("\x08"), 1769848200)))
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1<<60)
	return string(protowire.AppendString(protowire.AppendTag(b, 5, protowire.BytesType), "\x00\xff"))
}

// withSchema is the sound file with source.format and columns.
func withSchema(t *testing.T, format, columns string) string {
	t.Helper()
	return edit(t, "  start: earliest\n", "  start: earliest\n  format:\n"+format, "      delay: {from: body.delay, type: integer}\n", columns)
}

const avroColumns = `      number: body.number
      delay: {from: body.delay, type: integer}
      date: body.date
      departed: {from: body.departed, type: timestamp}
      price: {from: body.price, type: numeric}
      id: body.id
      raw: {from: body.raw, type: bytes}
      content: content_type
`

const protoColumns = `      number: body.number
      delay: {from: body.delay, type: integer}
      departed: {from: body.departed, type: timestamp}
      miles: {from: body.flownMiles, type: bigint}
      raw: {from: body.raw, type: bytes}
`

// TestSchemas: rows have the values of records of Avro and messages of Protobuf. What is neither is
// a dead letter as it was sent.
func TestSchemas(t *testing.T) {
	for name, c := range map[string]struct {
		format, columns, body, rows, want string
	}{
		"avro": {"    encoding: avro\n    schema: testdata/flight.avsc\n", avroColumns, avroFlight("AA 7", -3),
			"SELECT number, delay, date, departed, price, id, hex(raw), content FROM flights", "AA 7 -3 2026-01-31 2026-01-31 08:30:00.5+00:00 12.30 00010203-0405-0607-0809-0a0b0c0d0e0f 00FF application/json"},
		"protobuf": {"    encoding: protobuf\n    schema: testdata/flight.proto\n    message: pkg.Flight\n", protoColumns, protoFlight("AA 7", 0),
			"SELECT number, delay, departed, miles, hex(raw) FROM flights", "AA 7 0 2026-01-31 08:30:00+00:00 1152921504606846976 00FF"},
		"both, compressed": {"    compression: gzip\n    encoding: protobuf\n    schema: testdata/flight.proto\n    message: pkg.Flight\n", protoColumns, string(gzipped(protoFlight("AA 7", 0))),
			"SELECT number, delay FROM flights", "AA 7 0"},
	} {
		t.Run(name, func(t *testing.T) {
			url, db := sqliteFile(t)
			p, parts := formatted(t, withSchema(t, c.format, c.columns), "DATABASE_URL="+url)
			hub := sluicetest.NewHub(p.Group, 1)
			hub.Append("0", sluicetest.Bodies("\xffno flight", c.body)...)
			runUntil(t, parts, hub, "the last event is a row", func() bool { return query(t, db, c.rows) != "" })
			if got := query(t, db, c.rows); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if found := letters(t, p, parts); len(found) != 1 || string(found[0].Event.Body) != "\xffno flight" || found[0].Attempts != 1 {
				t.Errorf("dead letters %+v", found)
			}
		})
	}
}

// Values of logical types fit columns of the database's own types.
func (e *testedEngine) testFormats(t *testing.T, address string, db *sql.DB) {
	if e.formats != "" {
		mustExec(t, db, e.formats)
	}
	file := withSchema(t, "    compression: auto\n    encoding: avro\n    schema: testdata/flight.avsc\n",
		"      number: body.number\n      delay: {from: body.delay, type: integer}\n      date: body.date\n      price: {from: body.price, type: numeric}\n      id: body.id\n")
	p, parts := formatted(t, file, "DATABASE_URL="+address)
	consume(t, p, parts,
		&sluice.Event{Body: []byte(avroFlight("AA 7", 3))},
		&sluice.Event{Body: gzipped(avroFlight("AA 8", 3)), Properties: map[string]any{"content-encoding": "gzip"}},
		&sluice.Event{Body: []byte("\xffno flight")})
	if got := query(t, db, "SELECT number, id FROM flights WHERE delay = 3 AND date = '2026-01-31' AND price = '12.30' ORDER BY number"); got != "AA 7 00010203-0405-0607-0809-0a0b0c0d0e0f\nAA 8 00010203-0405-0607-0809-0a0b0c0d0e0f" {
		t.Errorf("rows %q", got)
	}
	if found := letters(t, p, parts); len(found) != 1 || string(found[0].Event.Body) != "\xffno flight" {
		t.Errorf("dead letters %+v", found)
	}
}

// TestRegistryIsAway: as long as the schema registry fails, no event becomes a dead letter and the
// checkpoint passes none. An event whose schema the registry does not have is a dead letter.
func TestRegistryIsAway(t *testing.T) {
	requests := atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			if r.URL.Path != "/schemas/ids/1" {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error_code":40403,"message":"Schema 2 not found"}`)
				return
			}
			fmt.Fprint(w, `{"schema":"{\"type\":\"record\",\"name\":\"F\",\"fields\":[{\"name\":\"delay\",\"type\":\"int\"}]}"}`)
		}
	}))
	defer srv.Close()
	posted := atomic.Int64{}
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.Header.Get("Sluice-Count"), 10, 64)
		posted.Add(n)
	}))
	defer target.Close()
	format := "    encoding: avro\n    registry: {confluent: {url: " + srv.URL + "}}\n"
	for name, file := range map[string]string{
		"transactional": withFormat(t, format),
		"at least once": edit(t, "  start: earliest\n", "  start: earliest\n  format:\n"+format, "database: ${DATABASE_URL}", "leases: {sql: \"${DATABASE_URL}\"}",
			sound[strings.Index(sound, "  insert:"):], "  http:\n    url: "+target.URL+"\n"),
	} {
		t.Run(name, func(t *testing.T) {
			requests.Store(0)
			posted.Store(0)
			url, db := sqliteFile(t)
			p, parts := formatted(t, file, "DATABASE_URL="+url)
			hub := sluicetest.NewHub(p.Group, 1)
			hub.Append("0", sluicetest.Bodies("\x00\x00\x00\x00\x01\x02", "\x00\x00\x00\x00\x02\x02", "\x00\x00\x00\x00\x01\x04")...)
			done := func() bool { return posted.Load() == 2 }
			if name == "transactional" {
				done = func() bool { return query(t, db, "SELECT delay FROM flights ORDER BY 1") == "1\n2" }
			}
			var found []sluice.DeadLetter
			runUntil(t, parts, hub, "two events are written, and one is a dead letter", func() bool {
				found = letters(t, p, parts)
				return done() && len(found) == 1
			})
			if want := "decode the body: the schema registry " + srv.URL + " does not have the schema 2 that it names"; !strings.HasSuffix(found[0].Error, want) || found[0].Event.Sequence != 1 {
				t.Errorf("dead letter %+v", found[0])
			}
			if requests.Load() < 5 {
				t.Errorf("%d requests", requests.Load())
			}
		})
	}
	p, err := Parse("p.yaml", []byte(withFormat(t, format)), environment())
	if err != nil {
		t.Fatal(err)
	}
	requests.Store(10)
	if err := p.checkFormat(t.Context()); err != nil {
		t.Error(err)
	}
	requests.Store(2)
	if err := p.checkFormat(t.Context()); err == nil || err.Error() != "p.yaml:10:5: source.format.registry: schema registry "+srv.URL+": GET /schemas/ids/0: 401 Unauthorized: check the credentials of source.format.registry" {
		t.Errorf("got %v", err)
	}
}
