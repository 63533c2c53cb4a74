package formats

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/jsonscan"
)

// connectSchema is a schema of Kafka Connect as its JSON converter writes it beside the value.
type connectSchema struct {
	Type       string            `json:"type"`
	Name       string            `json:"name"` // of the logical type
	Field      string            `json:"field"`
	Fields     []*connectSchema  `json:"fields"`
	Items      *connectSchema    `json:"items"`
	Values     *connectSchema    `json:"values"`
	Parameters map[string]string `json:"parameters"`
}

// member returns the schema of a field of a struct, nil if it is not known.
func (s *connectSchema) member(field string) *connectSchema {
	if s == nil {
		return nil
	}
	for _, f := range s.Fields {
		if f.Field == field {
			return f
		}
	}
	return nil
}

// connectSchemas are those that were parsed: each record repeats its own.
type connectSchemas struct {
	mu    sync.Mutex
	known map[uint64]*connectSchema
	seed  maphash.Seed
}

// maxConnectSchemas bounds what is kept. A topic has few schemas at a time.
const maxConnectSchemas = 100

func (k *connectSchemas) parse(raw []byte) (*connectSchema, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known, k.seed = map[uint64]*connectSchema{}, maphash.MakeSeed()
	}
	hash := maphash.Bytes(k.seed, raw)
	if s, ok := k.known[hash]; ok {
		return s, nil
	}
	s := new(connectSchema)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("its schema is none of Kafka Connect: %w", err)
	}
	if len(k.known) == maxConnectSchemas {
		clear(k.known)
	}
	k.known[hash] = s
	return s, nil
}

// connectWriter writes values with their logical types as texts and numbers that columns take.
type connectWriter struct {
	out   []byte
	limit int // of out, approximately
}

func newConnectWriter(size, limit int) *connectWriter {
	return &connectWriter{make([]byte, 0, min(size+leastJSON, limit)), limit}
}

// value writes the value that is next in a document.
func (w *connectWriter) value(scan *jsonscan.Scanner, s *connectSchema) error {
	if err := w.room(); err != nil {
		return err
	}
	switch first := scan.Peek(); {
	case s == nil || first == 'n':
	case first == '{' && s.Type == "struct" && s.Name == "":
		return w.object(scan, s.member)
	case first == '{' && s.Type == "struct":
		return w.named(scan, s)
	case first == '{' && s.Type == "map":
		return w.object(scan, func(string) *connectSchema { return s.Values })
	case first == '[' && s.Type == "array":
		return w.array(scan, s.Items)
	case s.Name != "":
		return w.logical(scan, s)
	}
	raw, err := scan.Value()
	w.out = append(w.out, raw...)
	return err
}

// room returns an error if more was written than the limit.
func (w *connectWriter) room() error {
	if len(w.out) > w.limit {
		return tooLarge(w.limit)
	}
	return nil
}

func (w *connectWriter) object(scan *jsonscan.Scanner, schema func(field string) *connectSchema) error {
	w.out = append(w.out, '{')
	n := 0
	err := scan.Object(func(key []byte) error {
		if n++; n > 1 {
			w.out = append(w.out, ',')
		}
		w.out = append(append(w.out, key...), ':')
		return w.value(scan, schema(string(jsonscan.Unquote(key))))
	})
	w.out = append(w.out, '}')
	return err
}

func (w *connectWriter) array(scan *jsonscan.Scanner, items *connectSchema) error {
	w.out = append(w.out, '[')
	n := 0
	err := scan.Array(func() error {
		if n++; n > 1 {
			w.out = append(w.out, ',')
		}
		return w.value(scan, items)
	})
	w.out = append(w.out, ']')
	return err
}

// named writes a struct that is one value of a database: others, such as a table's row, are
// objects.
func (w *connectWriter) named(scan *jsonscan.Scanner, s *connectSchema) error {
	switch s.Name {
	case "io.debezium.data.VariableScaleDecimal", "io.debezium.data.geometry.Point":
	default:
		return w.object(scan, s.member)
	}
	raw, err := scan.Value()
	if err != nil {
		return err
	}
	var v struct {
		Scale int
		Value []byte
		X, Y  json.Number
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("field %s: not a %s: %w", s.Field, s.Name, err)
	}
	if s.Name == "io.debezium.data.geometry.Point" {
		w.out = strconv.AppendQuote(w.out, "("+v.X.String()+","+v.Y.String()+")")
		return nil
	}
	return w.decimal(v.Value, v.Scale, s)
}

// The names of logical types of Kafka Connect and Debezium,
// https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types.
const (
	connectTypes  = "org.apache.kafka.connect.data."
	debeziumTimes = "io.debezium.time."
	debeziumData  = "io.debezium.data."
)

// timeUnits are the logical types of points in time, dates and times of day.
var (
	timeUnits = map[string]time.Duration{
		connectTypes + "Timestamp": time.Millisecond, debeziumTimes + "Timestamp": time.Millisecond,
		debeziumTimes + "MicroTimestamp": time.Microsecond, debeziumTimes + "NanoTimestamp": time.Nanosecond,
	}
	clockUnits = map[string]time.Duration{
		connectTypes + "Time": time.Millisecond, debeziumTimes + "Time": time.Millisecond,
		debeziumTimes + "MicroTime": time.Microsecond, debeziumTimes + "NanoTime": time.Nanosecond,
	}
	dateTypes = []string{connectTypes + "Date", debeziumTimes + "Date"}
)

// logical writes a value that is no struct.
func (w *connectWriter) logical(scan *jsonscan.Scanner, s *connectSchema) error {
	raw, err := scan.Value()
	if err != nil {
		return err
	}
	isText := raw[0] == '"'
	switch {
	case timeUnits[s.Name] > 0:
		return w.time(raw, s, timeUnits[s.Name], writePoint)
	case clockUnits[s.Name] > 0:
		return w.time(raw, s, clockUnits[s.Name], writeClock)
	case s.Name == dateTypes[0] || s.Name == dateTypes[1]:
		return w.time(raw, s, 24*time.Hour, writeDate)
	case s.Name == debeziumTimes+"MicroDuration":
		return w.time(raw, s, time.Microsecond, writeDuration)
	case s.Name == connectTypes+"Decimal" && isText:
		scale, err := strconv.Atoi(s.Parameters["scale"])
		bytes, err2 := base64.StdEncoding.DecodeString(string(jsonscan.Unquote(raw)))
		if err = errors.Join(err, err2); err != nil {
			return fmt.Errorf("field %s: not a decimal number: %w", s.Field, err)
		}
		return w.decimal(bytes, scale, s)
	case s.Name == debeziumData+"Json" && isText:
		text := jsonscan.Unquote(raw)
		inner := jsonscan.New(text, maxJSONDepth)
		if _, err := inner.Value(); err != nil || inner.End() != nil {
			return fmt.Errorf("field %s: its text is not JSON", s.Field)
		}
		w.out = append(w.out, text...)
		return nil
	case s.Name == debeziumData+"Bits" && isText:
		return w.bits(raw, s)
	}
	w.out = append(w.out, raw...)
	return nil
}

// maxJSONDepth is how deep JSON may nest.
const maxJSONDepth = 10000

// time writes a number of units as a text.
func (w *connectWriter) time(raw []byte, s *connectSchema, unit time.Duration, write func(b []byte, n int64, unit time.Duration) ([]byte, bool)) error {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	ok := err == nil
	if ok {
		w.out, ok = write(append(w.out, '"'), n, unit)
	}
	if !ok {
		return fmt.Errorf("field %s: %.40s is not a %s of the years from 1 to 9999", s.Field, raw, s.Name[strings.LastIndexByte(s.Name, '.')+1:])
	}
	w.out = append(w.out, '"')
	return nil
}

func writePoint(b []byte, n int64, unit time.Duration) ([]byte, bool) {
	perSecond := int64(time.Second / unit)
	at := time.Unix(n/perSecond, n%perSecond*int64(unit)).UTC()
	return at.AppendFormat(b, time.RFC3339Nano), at.Year() >= 1 && at.Year() <= 9999
}

func writeDate(b []byte, n int64, _ time.Duration) ([]byte, bool) {
	const most = 4_000_000 // days, beyond the year 9999
	if n < -most || n > most {
		return b, false
	}
	at := time.Unix(n*24*60*60, 0).UTC()
	return at.AppendFormat(b, time.DateOnly), at.Year() >= 1 && at.Year() <= 9999
}

// writeClock writes a time of day, of which PostgreSQL has 24:00:00 too.
func writeClock(b []byte, n int64, unit time.Duration) ([]byte, bool) {
	day := int64(24 * time.Hour / unit)
	if n < 0 || n > day {
		return b, false
	}
	if n == day {
		return append(b, "24:00:00"...), true
	}
	return time.Unix(0, n*int64(unit)).UTC().AppendFormat(b, "15:04:05.999999999"), true
}

// writeDuration writes an interval as ISO 8601 has it.
func writeDuration(b []byte, n int64, unit time.Duration) ([]byte, bool) {
	perSecond := int64(time.Second / unit)
	sign := ""
	if n < 0 {
		sign = "-"
	}
	seconds := new(big.Rat).SetFrac64(n, perSecond)
	return append(b, "PT"+sign+strings.TrimRight(strings.TrimRight(seconds.Abs(seconds).FloatString(9), "0"), ".")+"S"...), true
}

// maxScale bounds the zeros that a scale can make.
const maxScale = 20_000

// decimal writes an unscaled number as big-endian bytes have it, in two's complement.
func (w *connectWriter) decimal(unscaled []byte, scale int, s *connectSchema) error {
	if scale < -maxScale || scale > maxScale || len(unscaled) > maxScale {
		return fmt.Errorf("field %s: a number of more than %d digits", s.Field, maxScale)
	}
	n := new(big.Int).SetBytes(unscaled)
	if len(unscaled) > 0 && unscaled[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(unscaled))))
	}
	digits := n.Text(10)
	digits, negative := strings.CutPrefix(digits, "-")
	if negative {
		w.out = append(w.out, '-')
	}
	switch {
	case scale <= 0 && digits == "0":
		w.out = append(w.out, '0')
	case scale <= 0:
		w.out = append(append(w.out, digits...), strings.Repeat("0", -scale)...)
	default:
		digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
		at := len(digits) - scale
		w.out = append(append(append(w.out, digits[:at]...), '.'), digits[at:]...)
	}
	return nil
}

// bits writes a bit string, whose bytes come in the reverse order, without those that are zero at
// the end.
func (w *connectWriter) bits(raw []byte, s *connectSchema) error {
	bytes, err := base64.StdEncoding.DecodeString(string(jsonscan.Unquote(raw)))
	length, err2 := strconv.Atoi(s.Parameters["length"])
	if err = errors.Join(err, err2); err != nil || length < 0 || length > maxScale || 8*len(bytes) > length+7 {
		return fmt.Errorf("field %s: not a bit string of the length %.20q", s.Field, s.Parameters["length"])
	}
	w.out = append(w.out, '"')
	for i := length - 1; i >= 0; i-- {
		bit := byte('0')
		if i/8 < len(bytes) {
			bit += bytes[i/8] >> (i % 8) & 1
		}
		w.out = append(w.out, bit)
	}
	w.out = append(w.out, '"')
	return nil
}
