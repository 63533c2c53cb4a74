package disklog

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A pending batch keeps its place, and is written together with the first later one that is waited
// for.
func TestBegin(t *testing.T) {
	l := mustOpen(t, t.TempDir(), nil)
	var all []*Pending
	for i := range 3 {
		p, err := l.Begin([]Message{{Payload: fmt.Append(nil, i)}, {Payload: fmt.Append(nil, i, "b")}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if info := l.Info(); !info.Empty || all[0].Done() {
		t.Errorf("written before anybody waits: %+v", info)
	}
	if first, err := l.Append(context.Background(), []Message{{Payload: []byte("behind")}}); err != nil || first != 6 {
		t.Errorf("appended as %d, %v", first, err)
	}
	for i, p := range all {
		if !p.Done() {
			t.Errorf("batch %d isn't done, though a later one is", i)
		}
		if first, err := p.Wait(); err != nil || first != int64(2*i) {
			t.Errorf("batch %d is at %d: %v", i, first, err)
		}
	}
	if _, err := l.Begin([]Message{{Key: string(make([]byte, maxKey+1))}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a key that is too large: %v", err)
	}
	p, err := l.Begin([]Message{{Payload: []byte("too late")}})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	if _, err := p.Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("written to a closed log: %v", err)
	}
	if _, err := l.Begin(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("begun in a closed log: %v", err)
	}
}
