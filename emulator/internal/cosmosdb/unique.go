package cosmosdb

import (
	"fmt"
	"strconv"

	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

const (
	maxUniqueKeys  = 10
	maxUniquePaths = 16 // of a unique key
)

// uniqueKey is a constraint: no two documents of a partition key have the same values at its
// paths. A value that is missing counts as one.
type uniqueKey []keyPath

type uniqueKeyPolicy struct {
	Keys []struct {
		Paths []string `json:"paths"`
	} `json:"uniqueKeys"`
}

func (p *uniqueKeyPolicy) parse() ([]uniqueKey, error) {
	if len(p.Keys) > maxUniqueKeys {
		return nil, fmt.Errorf("%d unique keys: a container has at most %d", len(p.Keys), maxUniqueKeys)
	}
	var keys []uniqueKey
	for _, k := range p.Keys {
		if len(k.Paths) == 0 || len(k.Paths) > maxUniquePaths {
			return nil, fmt.Errorf("a unique key has 1 to %d paths", maxUniquePaths)
		}
		var key uniqueKey
		for _, text := range k.Paths {
			path, ok := parseKeyPath(text)
			if !ok {
				return nil, fmt.Errorf("unique key path %.40q: must be /name or /name/name", text)
			}
			key = append(key, path)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// uniqueIndex has the numbers of a partition's documents by the values of their unique keys.
// Nil has no unique keys.
type uniqueIndex struct {
	keys   []uniqueKey
	number map[string]uint64
}

func newUniqueIndex(keys []uniqueKey) *uniqueIndex {
	if len(keys) == 0 {
		return nil
	}
	return &uniqueIndex{keys, make(map[string]uint64)}
}

// entries returns the entries of a document: a text for each unique key.
func (x *uniqueIndex) entries(key, body []byte) []string {
	if x == nil {
		return nil
	}
	object := append(append([]byte(nil), body...), '}')
	list := make([]string, len(x.keys))
	for i, k := range x.keys {
		text := append(strconv.AppendInt(nil, int64(i), 10), key...)
		for _, path := range k {
			text = append(text, ',')
			value, ok := jsonscan.Lookup(object, path)
			if !ok {
				continue
			}
			if v, err := partitionkey.ParseValue(value); err == nil && value[0] != '{' {
				text = v.AppendJSON(text)
			} else {
				text = append(text, value...)
			}
		}
		list[i] = string(text)
	}
	return list
}

// conflicts reports whether another document than the one with that number has the values of a
// document.
func (x *uniqueIndex) conflicts(key, body []byte, number uint64) bool {
	for _, e := range x.entries(key, body) {
		if n, ok := x.number[e]; ok && n != number {
			return true
		}
	}
	return false
}

func (x *uniqueIndex) add(rec record) {
	for _, e := range x.entries(rec.key(), rec.body()) {
		x.number[e] = rec.number()
	}
}

func (x *uniqueIndex) remove(rec record) {
	for _, e := range x.entries(rec.key(), rec.body()) {
		delete(x.number, e)
	}
}
