package upload

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxKey is the length limit of a partition key of Event Hubs, and of a session id of Service
// Bus, in characters.
const maxKey = 128

// key returns the value of a field of a JSON object as a key: a string without its quotes, a
// number or a boolean as it is written. Unless it may be long, it has up to maxKey characters.
func key(body []byte, field string, long bool) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return "", fmt.Errorf("key field %s: the record is not a JSON object", field)
	}
	raw, ok := object[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("key field %s is missing", field)
	}
	k := string(raw)
	switch raw[0] {
	case '{', '[':
		return "", fmt.Errorf("key field %s is an object or an array: a key must be a string, a number or a boolean", field)
	case '"':
		if err := json.Unmarshal(raw, &k); err != nil {
			return "", fmt.Errorf("key field %s: %w", field, err)
		}
	}
	if k == "" {
		return "", fmt.Errorf("key field %s is empty", field)
	}
	if n := len([]rune(k)); n > maxKey && !long {
		return "", fmt.Errorf("key field %s has %d characters: the limit is %d", field, n, maxKey)
	}
	return k, nil
}
