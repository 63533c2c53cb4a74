package formats

import (
	"bytes"
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
	out       []byte
	limit     int
	hasNoText bool
	plain     bool // only what JSON requires is escaped in texts
}

// fitted returns what was written, without memory that it does not need: it is kept until its event
// is handled.
func fitted(out []byte) []byte {
	if cap(out) > 2*len(out)+1024 {
		return bytes.Clone(out)
	}
	return out
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
		return w.text([]byte(v))
	case []byte:
		return w.base64(v)
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
		return errTooLarge
	}
	return nil
}

// errTooLarge stands for the error of [tooLarge].
var errTooLarge = errors.New("it is too large")

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

// base64 appends bytes.
func (w *jsonWriter) base64(b []byte) error {
	if base64.StdEncoding.EncodedLen(len(b)) > w.limit-len(w.out) { // before it takes memory
		return errTooLarge
	}
	w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), b), '"')
	return w.room()
}

// noText stands for a text that is not UTF-8 until it is known that it is not replaced: an entry of
// a map may come again. JSON does not have this byte.
const noText = 0xff

// text appends a text.
func (w *jsonWriter) text(s []byte) error {
	if len(s) > w.limit-len(w.out) { // before it takes memory
		return errTooLarge
	}
	for _, c := range s {
		if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return w.escaped(s)
		}
	}
	w.out = append(append(append(w.out, '"'), s...), '"')
	return w.room()
}

// escaped appends a text as encoding/json has it.
func (w *jsonWriter) escaped(s []byte) error {
	if !utf8.Valid(s) {
		w.out, w.hasNoText = append(w.out, noText), true
		return w.room()
	}
	w.out = append(w.out, '"')
	done := 0
	for i := 0; i < len(s); {
		var escape string
		size := 1
		if c := s[i]; c < utf8.RuneSelf {
			if escape = escapes[c]; w.plain && c > ' ' && c != '"' && c != '\\' {
				escape = ""
			}
		} else if !w.plain {
			var r rune
			if r, size = utf8.DecodeRune(s[i:]); r == '\u2028' || r == '\u2029' { // which JavaScript does not have in texts
				escape = `\u202` + string('0'+r&0xf)
			}
		}
		if escape != "" {
			if w.out = append(append(w.out, s[done:i]...), escape...); len(w.out) > w.limit {
				return errTooLarge
			}
			done = i + size
		}
		i += size
	}
	w.out = append(append(w.out, s[done:]...), '"')
	return w.room()
}

// escapes are those of ASCII.
var escapes = func() (all [utf8.RuneSelf]string) {
	for c := range all {
		if quoted, _ := json.Marshal(string(rune(c))); len(quoted) > len(`"x"`) {
			all[c] = string(quoted[1 : len(quoted)-1])
		}
	}
	return all
}()

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
		if err := w.text([]byte(name)); err != nil {
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
