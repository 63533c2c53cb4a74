package blobstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A reference that is accepted names a blob, and has a size within the limit.
func FuzzReference(f *testing.F) {
	f.Add([]byte(`{"claim_check":{"container":"https://a.blob.core.windows.net/c","blob":"9f2c","size":7,"sha256":"9f2c"}}`))
	f.Add([]byte(`{"claim_check":{"blob":"a","size":101}}`))
	f.Add([]byte(`{"claim_check":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := (&Bodies{most: 100}).parse(text)
		switch {
		case err != nil && !errors.Is(err, ErrBody):
			t.Fatalf("%q: %v", text, err)
		case err == nil && (r.Blob == "" || len(r.Blob) > maxName || r.Size < 0 || r.Size > 100):
			t.Fatalf("%q is the reference %+v", text, r)
		}
	})
}

// A blob has a name that ends with the hash.
func TestNameInReference(t *testing.T) {
	hash := strings.Repeat("9f", 32)
	for name, sound := range map[string]bool{
		hash: true, "large/" + hash: true, strings.ToUpper(hash): true,
		"": false, ".": false, "..": false, "other": false, hash + "/..": false, `\u0000` + hash: false, strings.Repeat("a", maxName) + hash: false,
	} {
		_, err := (&Bodies{most: 100}).parse(fmt.Appendf(nil, `{"claim_check":{"blob":"%s","size":7,"sha256":"%s"}}`, name, hash))
		if sound != (err == nil) || err != nil && !errors.Is(err, ErrBody) {
			t.Errorf("blob %.20q: %v", name, err)
		}
	}
	if _, err := (&Bodies{most: 100}).parse([]byte(`{"claim_check":{"blob":"9f2c","size":7,"sha256":"9f2c"}}`)); !errors.Is(err, ErrBody) {
		t.Errorf("a short hash: %v", err)
	}
}
