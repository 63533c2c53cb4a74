package loadgen_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
)

// document is what a reader finds.
type document struct{ ID, Key, Payload string }

func TestDocuments(t *testing.T) {
	docs, err := loadgen.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int64{}
	for _, n := range []int64{0, 1, 9, 10, 69_999, 70_000, 139_999, 999_999_999, 1e10 - 1, 1e10, 99_999_999_999} {
		body := docs.Append(nil, n)
		var d document
		if err := json.Unmarshal(body, &d); err != nil {
			t.Fatalf("%d: %v in %s", n, err, body)
		}
		if want := fmt.Sprintf("doc-%010d", n); d.ID != want || docs.ID(n) != want {
			t.Errorf("document %d has id %s, and %s by number", n, d.ID, docs.ID(n))
		}
		if again, ok := docs.Number(d.ID); !ok || again != n {
			t.Errorf("document %s has number %d, %v", d.ID, again, ok)
		}
		if want := fmt.Sprintf("key-%d", n%70_000); d.Key != want || docs.Key(n) != want {
			t.Errorf("document %d has key %s, and %s by number", n, d.Key, docs.Key(n))
		}
		if len(body) != 1000 || len(d.Payload) < 900 {
			t.Errorf("document %d has %d bytes", n, len(body))
		}
		if other, ok := seen[d.Payload]; ok {
			t.Errorf("documents %d and %d have the same payload", n, other)
		}
		seen[d.Payload] = n
		if again := docs.Append(nil, n); string(again) != string(body) {
			t.Errorf("document %d is not the same again", n)
		}
	}
}

func TestIDsOfNoDocument(t *testing.T) {
	docs, err := loadgen.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "doc-", "doc-1", "doc-00000000001", "doc--000000001", "doc-+000000001", "Doc-0000000001", "doc-000000000x", "doc-100000000000", "doc-99999999999999999999"} {
		if n, ok := docs.Number(id); ok {
			t.Errorf("id %q is document %d's", id, n)
		}
	}
}

func TestSizesOfDocuments(t *testing.T) {
	for _, size := range []int{63, 64, 65, 1 << 16, 200_001} {
		docs, err := loadgen.NewDocuments(&loadgen.DocumentsConfig{Prefix: "a", Keys: 1000, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{0, 7, 12_345_678} {
			if body := docs.Append([]byte("before"), n); len(body) != len("before")+size || !json.Valid(body[len("before"):]) {
				t.Errorf("document %d of %d bytes has %d", n, size, len(body))
			}
		}
	}
	for want, cfg := range map[string]*loadgen.DocumentsConfig{
		"prefix":                   {Prefix: "a/b"},
		"at most 100 letters":      {Prefix: strings.Repeat("a", 101)},
		"-1 keys":                  {Keys: -1},
		"must be 1 to 1000000":     {Keys: 1_000_001},
		"documents of 40 bytes":    {Size: 40},
		"documents of -1 bytes":    {Size: -1},
		"documents of 1000001 byt": {Size: 1_000_001},
	} {
		if _, err := loadgen.NewDocuments(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", cfg, err, want)
		}
	}
}
