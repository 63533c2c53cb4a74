package upload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxKey is the length limit of a partition key of Event Hubs, and of a session id of Service
// Bus, in characters.
const maxKey = 128

// key returns the value of a field of a JSON object as a key. Unless it may be long, it has up to
// maxKey characters.
func key(body []byte, field string, long bool) (string, error) {
	object, ok := fieldsOf(body)
	if !ok {
		return "", fmt.Errorf("key field %s: the record is not a JSON object", field)
	}
	k, there, err := fieldText(object, field)
	switch {
	case err != nil:
		return "", fmt.Errorf("key field %s %w: a key must be a string, a number or a boolean", field, err)
	case !there:
		return "", fmt.Errorf("key field %s is missing", field)
	case k == "":
		return "", fmt.Errorf("key field %s is empty", field)
	}
	if n := len([]rune(k)); n > maxKey && !long {
		return "", fmt.Errorf("key field %s has %d characters: the limit is %d", field, n, maxKey)
	}
	return k, nil
}

// fieldsOf returns the fields of a JSON object.
func fieldsOf(body []byte) (object map[string]json.RawMessage, ok bool) {
	err := json.Unmarshal(body, &object)
	return object, err == nil
}

// fieldText returns the value of a field as text: a string without its quotes, a number or a boolean
// as it is written. Null counts as missing.
func fieldText(object map[string]json.RawMessage, field string) (text string, there bool, err error) {
	raw, ok := object[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", false, nil
	}
	switch raw[0] {
	case '{', '[':
		return "", true, errors.New("is an object or an array")
	case '"':
		err := json.Unmarshal(raw, &text)
		return text, true, err
	}
	return string(raw), true, nil
}
