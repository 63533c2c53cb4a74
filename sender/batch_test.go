package sender

import (
	"reflect"
	"testing"
)

// TestKeptMessage compares messages that were kept with the originals: each has
// the same fields and the same id, whichever of its fields are set.
func TestKeptMessage(t *testing.T) {
	r := &run{ids: newIDGenerator()}
	all := reflect.ValueOf(Message{
		Key: "k", SessionID: "s", MessageID: "m", CorrelationID: "c", ContentType: "t",
		Properties: map[string]any{"p": 1}, Body: []byte("b"),
	})
	index := int64(0)
	for set := range 1 << all.NumField() {
		var m Message
		for i := range all.NumField() {
			if set&(1<<i) != 0 {
				reflect.ValueOf(&m).Elem().Field(i).Set(all.Field(i))
			}
		}
		k := keep(&m, index)
		if m.MessageID == "" {
			m.MessageID = r.ids.id(index)
		}
		if got := r.message(&k); !reflect.DeepEqual(*got, m) || k.index != index {
			t.Errorf("message %d %+v was kept as %d %+v", index, m, k.index, *got)
		}
		index = 1 + 2*index
		if index < 0 {
			index = 0
		}
	}
}
