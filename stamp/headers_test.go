package stamp_test

import (
	"fmt"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/stamp"
)

// TestDropStampHeaders: a stage that passes on headers of a stamped event must not pass on its
// stamp.
func TestDropStampHeaders(t *testing.T) {
	properties := map[string]any{}
	(&stamp.Stamp{Parked: "1-2", Redrive: true}).SetTo(properties)
	stamp.Sign(properties, []byte("0123456789abcdef"))
	given := []sluice.Header{{Name: "a", Value: []byte("1")}, {Name: "a"}}
	for name := range properties {
		given = append(given, sluice.Header{Name: name}, sluice.Header{Name: "b"})
	}
	before := fmt.Sprint(given)
	kept := stamp.DropHeaders(given)
	if len(kept) != 2+len(properties) || kept[0].Name != "a" || kept[1].Name != "a" || kept[2].Name != "b" {
		t.Errorf("kept %v", kept)
	}
	if fmt.Sprint(given) != before {
		t.Error("the event's own headers were changed")
	}
	if kept := stamp.DropHeaders(given[:2]); &kept[0] != &given[0] {
		t.Error("headers without a stamp were copied")
	}
}
