package upload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
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
		return "", fmt.Errorf("key field %s %w", field, err)
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

// fieldText returns the value of a field as text: a string without its quotes, a number or a
// boolean as it is written. Null counts as missing.
func fieldText(object map[string]json.RawMessage, field string) (text string, there bool, err error) {
	raw, ok := object[field]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return "", false, nil
	}
	switch raw[0] {
	case '{', '[':
		return "", true, errors.New("is an object or an array: it must be a string, a number or a boolean")
	case '"':
		if unpaired(raw) {
			return "", true, errors.New("has half of a surrogate pair, which is no character")
		}
		err := json.Unmarshal(raw, &text)
		return text, true, err
	}
	return string(raw), true, nil
}

// unpaired reports whether a JSON string has an escaped half of a surrogate pair alone. The decoder
// replaces each by the same character, so that different texts would become one.
func unpaired(quoted []byte) bool {
	for i := 0; i < len(quoted); i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		first, ok := escaped(quoted[i:])
		if !ok {
			continue
		}
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		var second rune
		if i+2 < len(quoted) && quoted[i+1] == '\\' {
			second, _ = escaped(quoted[i+2:])
		}
		if utf16.DecodeRune(first, second) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped returns the code unit of an escape like u00e4 at the beginning of a text.
func escaped(text []byte) (unit rune, ok bool) {
	if len(text) < 5 || text[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[1:5]), 16, 16)
	return rune(n), err == nil
}
