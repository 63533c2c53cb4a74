package pipeline

import (
	"hash/maphash"
	"testing"
)

// TestSharedDocumentsAreBounded: what is no longer counted is not taken for none.
func TestSharedDocumentsAreBounded(t *testing.T) {
	d := &Documents{target: &cosmosTarget{}, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, bound: 2}
	for i, c := range []struct {
		id      string
		shared  int64
		atLeast bool
	}{{"a", 0, false}, {"b", 0, false}, {"a", 1, false}, {"c", 1, true}, {"c", 1, true}, {"b", 2, true}} {
		var doc document
		doc.ID = c.id
		d.countShared([]document{doc})
		if n, atLeast := d.Shared(); n != c.shared || atLeast != c.atLeast {
			t.Errorf("document %d: %d shared, at least: %t; want %d, %t", i, n, atLeast, c.shared, c.atLeast)
		}
	}
}
