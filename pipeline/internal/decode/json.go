package decode

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// number is a number in JSON's notation.
type number string

// jsonWriter writes a decoded value as JSON.
type jsonWriter struct {
	out   []byte
	limit int
}

// value appends a value. Bytes become base64, and numbers that are none the texts NaN, Infinity and
// -Infinity. Members are sorted by name.
func (w *jsonWriter) value(v any) error {
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case int32:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	case float32:
		w.float(float64(v), 32)
	case float64:
		w.float(v, 64)
	case number:
		w.out = append(w.out, v...)
	case *big.Rat:
		digits, exact := v.FloatPrec()
		if !exact {
			return fmt.Errorf("%.40q is not a decimal number", v.String())
		}
		w.out = append(w.out, v.FloatString(digits)...)
	case string:
		if err := w.text(v); err != nil {
			return err
		}
	case []byte:
		w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), v), '"')
	case []any:
		return w.array(v)
	case map[string]any:
		return w.object(v)
	default:
		return fmt.Errorf("a value is a %T, which JSON does not have", v)
	}
	return w.room()
}

func (w *jsonWriter) room() error {
	if len(w.out) > w.limit {
		return tooLarge(w.limit)
	}
	return nil
}

func (w *jsonWriter) float(f float64, bits int) {
	switch {
	case math.IsNaN(f):
		w.out = append(w.out, `"NaN"`...)
	case math.IsInf(f, 1):
		w.out = append(w.out, `"Infinity"`...)
	case math.IsInf(f, -1):
		w.out = append(w.out, `"-Infinity"`...)
	default:
		w.out = strconv.AppendFloat(w.out, f, 'g', -1, bits)
	}
}

func (w *jsonWriter) text(s string) error {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			if !utf8.ValidString(s) {
				return errors.New("a text is not UTF-8")
			}
			quoted, err := json.Marshal(s)
			w.out = append(w.out, quoted...)
			return err
		}
	}
	w.out = append(append(append(w.out, '"'), s...), '"')
	return nil
}

func (w *jsonWriter) array(list []any) error {
	w.out = append(w.out, '[')
	for i, v := range list {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(v); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return w.room()
}

func (w *jsonWriter) object(members map[string]any) error {
	w.out = append(w.out, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.text(name); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.value(members[name]); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return w.room()
}
