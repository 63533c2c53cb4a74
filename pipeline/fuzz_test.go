package pipeline

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// FuzzConvert: of any value in an event each type of column gets what it can
// hold, or an error of one line that is about the event.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{
		`"SAN"`, `-12.50e1`, `1e400`, `9223372036854775808`, `true`, `null`, `{"a":[1]}`, `"2026-01-31T08:30:00.5+02:00"`, `"AP8="`, `"a\u0000b"`,
		`"\ud800"`, `"1e999999999"`, `"-0"`, `""`,
	} {
		f.Add(s)
	}
	kinds := []columnType{typeText, typeInteger, typeBigint, typeDouble, typeNumeric, typeBoolean, typeTimestamp, typeBytes, typeJSON}
	mappings := make([]*mapping, len(kinds))
	for i, kind := range kinds {
		mappings[i] = mappingOf(f, "c: {from: body.v, type: "+string(kind)+"}")
	}
	f.Fuzz(func(t *testing.T, value string) {
		body := []byte(`{"v":` + value + `}`)
		for i, kind := range kinds {
			rows, err := mappings[i].rows([]*sluice.Event{{Body: body}}, nil)
			if err != nil {
				var bad *driver.EventError
				if !errors.As(err, &bad) || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 500 {
					t.Fatalf("%s of %q: %v", kind, value, err)
				}
				continue
			}
			ok := false
			switch v := rows[0][0].(type) {
			case nil:
				ok = true
			case string:
				ok = kind == typeText && utf8.ValidString(v) && !strings.Contains(v, "\x00") || kind == typeNumeric && len(v) <= maxDigits+2 ||
					kind == typeJSON && json.Valid([]byte(v))
			case int64:
				ok = kind == typeBigint || kind == typeInteger && v >= math.MinInt32 && v <= math.MaxInt32
			case float64:
				ok = kind == typeDouble && !math.IsNaN(v) && !math.IsInf(v, 0)
			case bool:
				ok = kind == typeBoolean
			case time.Time:
				ok = kind == typeTimestamp && v.Location() == time.UTC
			case []byte:
				ok = kind == typeBytes
			}
			if !ok {
				t.Fatalf("%s of %q is a %T: %[3]v", kind, value, rows[0][0])
			}
		}
	})
}
