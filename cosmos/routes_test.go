package cosmos

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

func TestSplit(t *testing.T) {
	f := newFake(t)
	s := f.open(t, nil)
	submit(t, s, documents(10)...)
	f.replace(func() {
		f.ranges = strings.TrimSuffix(oneRange, "]") + "," + strings.TrimPrefix(twoRanges, "[") // the parent is still listed
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			if r.Header.Get("x-ms-documentdb-partitionkeyrangeid") != "0" {
				return false
			}
			w.Header().Set("x-ms-substatus", "1002")
			w.WriteHeader(http.StatusGone)
			return true
		}
	})
	for i, r := range submit(t, s, documents(1000)...) {
		if r.Err != nil {
			t.Fatalf("document %d: %v", i, r.Err)
		}
	}
	if f.count() != 1000 || f.looks > 10 {
		t.Errorf("%d documents, %d looks at the ranges", f.count(), f.looks)
	}
}

// A list of ranges that was read during a split is read again.
func TestRangesWithAGap(t *testing.T) {
	f := newFake(t)
	f.ranges = `[{"id":"1","minInclusive":"","maxExclusive":"1FFF"}]`
	s := f.open(t, nil)
	if err := submit(t, s, document(0))[0].Err; !errors.As(err, new(*driver.RetryError)) {
		t.Error(err)
	}
	f.replace(func() { f.ranges = twoRanges })
	if err := submit(t, s, document(0))[0].Err; err != nil {
		t.Error(err)
	}
}

// A container that is recreated with another key definition.
func TestRecreated(t *testing.T) {
	f := newFake(t)
	s := f.open(t, nil)
	submit(t, s, document(0))
	f.replace(func() {
		f.container, f.ranges = `{"_rid":"r2","partitionKey":{"paths":["/key"],"kind":"Hash"}}`, twoRanges
		f.operation = func(op fakeOperation) map[string]any { return nil }
		f.answer = func(w http.ResponseWriter, r *http.Request, batch []fakeOperation) bool {
			if r.Header.Get("x-ms-documentdb-partitionkeyrangeid") != "0" {
				return false
			}
			w.Header().Set("x-ms-substatus", "1000")
			w.WriteHeader(http.StatusGone)
			return true
		}
	})
	for _, r := range submit(t, s, documents(20)...) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if d := s.routes.Load().hash; d.Version != 1 {
		t.Errorf("the definition is %+v", d)
	}
}
