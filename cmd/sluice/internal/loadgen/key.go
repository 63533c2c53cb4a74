package loadgen

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxKey is the longest partition key that Event Hubs takes, and the longest
// session id of Service Bus, in characters.
const maxKey = 128

// key returns the key in a field of a JSON object: a text as it is,
// a number or a boolean as it is written.
func key(body []byte, field string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return "", fmt.Errorf("the key's field %s: not an object", field)
	}
	raw, ok := object[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("the key's field %s is missing", field)
	}
	k := string(raw)
	switch raw[0] {
	case '{', '[':
		return "", fmt.Errorf("the key's field %s is neither text nor number", field)
	case '"':
		if err := json.Unmarshal(raw, &k); err != nil {
			return "", fmt.Errorf("the key's field %s: %w", field, err)
		}
	}
	if k == "" {
		return "", fmt.Errorf("the key's field %s is empty", field)
	}
	if n := len([]rune(k)); n > maxKey {
		return "", fmt.Errorf("the key's field %s has %d characters, a key has at most %d", field, n, maxKey)
	}
	return k, nil
}
