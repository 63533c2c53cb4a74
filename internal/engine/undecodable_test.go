package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

func TestUndecodable(t *testing.T) {
	good, bad := &driver.Event{Sequence: 1}, &driver.Event{Partition: "0", Sequence: 2, Undecodable: "what"}
	records := DecodedRecords(func(context.Context, *driver.Event) ([]int, error) { return []int{1}, nil })
	if made, err := records(t.Context(), good); err != nil || len(made) != 1 {
		t.Errorf("%v, %v", made, err)
	}
	if made, err := records(t.Context(), bad); !errors.Is(err, driver.ErrRejected) || errors.Is(err, driver.ErrUndecodable) || made != nil {
		t.Errorf("%v, %v", made, err)
	}
	called := 0
	handler := DecodedBatches(func(context.Context, int, driver.Batch) error { called++; return nil })
	err := handler(t.Context(), 0, driver.Batch{Events: []*driver.Event{good, bad, good, bad}})
	if blamed := Blamed(err, 4); called != 0 || len(blamed) != 2 || blamed[0].Index != 1 || blamed[1].Index != 3 || FaultOf(blamed[0].Err) != FaultRejected {
		t.Errorf("%v, %d calls", err, called)
	}
	if err := handler(t.Context(), 0, driver.Batch{Events: []*driver.Event{good}}); err != nil || called != 1 {
		t.Errorf("%v, %d calls", err, called)
	}
}
