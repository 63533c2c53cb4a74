package blobstore

import (
	"errors"
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
