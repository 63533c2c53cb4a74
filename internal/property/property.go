// Package property encodes an event's application properties as JSON without losing
// their types, so that a redriven dead letter has its original properties.
//
// Strings, booleans and null are plain JSON; every other value is an object of
// one member that names its Go type: {"int64":"12"}.
package property

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Encode returns properties as JSON, or nil if there are none. A value of a type
// that AMQP does not have is an error.
func Encode(properties map[string]any) ([]byte, error) {
	if len(properties) == 0 {
		return nil, nil
	}
	out, err := tagged(properties)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// tagged returns properties with the types that JSON does not have as tagged values.
func tagged(properties map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(properties))
	for k, v := range properties {
		w, err := tag(v)
		if err != nil {
			return nil, fmt.Errorf("property %q: %w", k, err)
		}
		out[k] = w
	}
	return out, nil
}

func tag(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool:
		return v, nil
	case int8, int16, int32, int64, int, uint8, uint16, uint32, uint64, uint:
		return map[string]string{fmt.Sprintf("%T", v): fmt.Sprint(v)}, nil
	case float32:
		return map[string]string{"float32": strconv.FormatFloat(float64(v), 'g', -1, 32)}, nil
	case float64:
		return map[string]string{"float64": strconv.FormatFloat(v, 'g', -1, 64)}, nil
	case []byte:
		return map[string]string{"bytes": base64.StdEncoding.EncodeToString(v)}, nil
	case time.Time:
		return map[string]string{"time": v.Format(time.RFC3339Nano)}, nil
	case driver.DateTimeOffset:
		return map[string]string{"datetimeoffset": strconv.FormatInt(int64(v), 10)}, nil
	case driver.TimeSpan:
		return map[string]string{"timespan": strconv.FormatInt(int64(v), 10)}, nil
	case driver.URI:
		return map[string]string{"uri": string(v)}, nil
	}
	return nil, fmt.Errorf("type %T cannot be stored", v)
}

// Decode is the inverse of [Encode].
func Decode(data []byte) (map[string]any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var in map[string]any
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	return untagged(in)
}

// untagged is the inverse of tagged. It changes the map.
func untagged(in map[string]any) (map[string]any, error) {
	for k, v := range in {
		switch v := v.(type) {
		case nil, string, bool:
		case map[string]any:
			w, err := untag(v)
			if err != nil {
				return nil, fmt.Errorf("property %q: %w", k, err)
			}
			in[k] = w
		default:
			return nil, fmt.Errorf("property %q: %w", k, errUntagged)
		}
	}
	return in, nil
}

var errUntagged = errors.New("not a tagged value")

func untag(m map[string]any) (any, error) {
	for name, raw := range m {
		text, ok := raw.(string)
		if !ok || len(m) != 1 {
			break
		}
		switch name {
		case "int8", "int16", "int32", "int64", "int":
			return signed(name, text)
		case "uint8", "uint16", "uint32", "uint64", "uint":
			return unsigned(name, text)
		case "float32":
			f, err := strconv.ParseFloat(text, 32)
			return float32(f), err
		case "float64":
			return strconv.ParseFloat(text, 64)
		case "bytes":
			return base64.StdEncoding.DecodeString(text)
		case "time":
			return time.Parse(time.RFC3339Nano, text)
		case "datetimeoffset":
			ticks, err := strconv.ParseInt(text, 10, 64)
			return driver.DateTimeOffset(ticks), err
		case "timespan":
			ticks, err := strconv.ParseInt(text, 10, 64)
			return driver.TimeSpan(ticks), err
		case "uri":
			return driver.URI(text), nil
		}
	}
	return nil, errUntagged
}

func signed(name, text string) (any, error) {
	bits := map[string]int{"int8": 8, "int16": 16, "int32": 32}[name]
	if bits == 0 {
		bits = 64
	}
	n, err := strconv.ParseInt(text, 10, bits)
	switch name {
	case "int8":
		return int8(n), err
	case "int16":
		return int16(n), err
	case "int32":
		return int32(n), err
	case "int":
		return int(n), err
	}
	return n, err
}

func unsigned(name, text string) (any, error) {
	bits := map[string]int{"uint8": 8, "uint16": 16, "uint32": 32}[name]
	if bits == 0 {
		bits = 64
	}
	n, err := strconv.ParseUint(text, 10, bits)
	switch name {
	case "uint8":
		return uint8(n), err
	case "uint16":
		return uint16(n), err
	case "uint32":
		return uint32(n), err
	case "uint":
		return uint(n), err
	}
	return n, err
}
