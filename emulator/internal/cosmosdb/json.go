package cosmosdb

import (
	"encoding/json"
	"strconv"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendFloat(dst []byte, f float64) []byte { return strconv.AppendFloat(dst, f, 'f', -1, 64) }

// appendQuoted appends a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	text, _ := json.Marshal(s) // strings can always be written
	return append(dst, text...)
}

// mustJSON encodes a value of the package's own types, which cannot fail.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
