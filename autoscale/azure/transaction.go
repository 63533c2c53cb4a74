package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/sluice-go/sluice/autoscale"
)

// maxAnswer is how much of the answer to a refused transaction is read: its code is at the
// beginning.
const maxAnswer = 64 << 10

// maxTransaction is how many rows one transaction of a table can change.
const maxTransaction = 100

// transaction collects changes of a partition that are made atomically.
type transaction struct {
	actions []aztables.TransactionAction
	err     error // the first
}

func (t *transaction) add(kind aztables.TransactionType, e *aztables.EDMEntity, match *azcore.ETag) {
	text, err := json.Marshal(e)
	if err != nil && t.err == nil {
		t.err = err
	}
	t.actions = append(t.actions, aztables.TransactionAction{ActionType: kind, Entity: text, IfMatch: match})
}

// memory adds the row ~memory, which has the state without windows. exists says
// whether there is a row to replace.
func (t *transaction) memory(m *autoscale.ResourceState, version int64, exists bool, etag azcore.ETag) error {
	bare := *m
	bare.Windows, bare.Version, bare.Resource = nil, "", ""
	e := row(m.Resource, memoryRow)
	e.Properties["Version"] = aztables.EDMInt64(version)
	if err := errors.Join(put(e, "Memory", bare), put(e, "Metrics", slices.Sorted(maps.Keys(m.Windows)))); err != nil {
		return err
	}
	if exists {
		t.add(aztables.TransactionTypeUpdateReplace, e, &etag)
	} else {
		t.add(aztables.TransactionTypeAdd, e, nil)
	}
	return nil
}

func (t *transaction) window(m *autoscale.ResourceState, metric string, w *autoscale.Window) error {
	e := row(m.Resource, key(metric))
	e.Properties["Metric"] = metric
	if last := m.LastAction(); !last.IsZero() {
		e.Properties["LastAction"] = aztables.EDMDateTime(last)
	}
	if err := put(e, "History", w); err != nil {
		return err
	}
	t.add(aztables.TransactionTypeInsertReplace, e, nil)
	return nil
}

func (t *transaction) record(resource string, r autoscale.Record) error {
	e := row(resource, recordRow(r.Sequence))
	e.Properties["At"] = aztables.EDMInt64(r.Time.UnixNano())
	if err := put(e, "Record", r); err != nil {
		return err
	}
	t.add(aztables.TransactionTypeInsertReplace, e, nil)
	return nil
}

var (
	// errRowGone: a row to delete does not exist any more.
	errRowGone = errors.New("a row does not exist any more")
	// code finds the error code in the response to a transaction: a multipart text
	// that the SDK does not search for it.
	code = regexp.MustCompile(`"code":\s*"(\w{1,100})"`)
)

// commit makes the changes, and empties the transaction. It returns
// [autoscale.ErrConflict] if the row ~memory has changed.
func (t *transaction) commit(ctx context.Context, table *aztables.Client) error {
	actions, err := t.actions, t.err
	t.actions, t.err = nil, nil
	switch {
	case err != nil || len(actions) == 0:
		return err
	case len(actions) > maxTransaction:
		return fmt.Errorf("%d rows in one transaction: the maximum is %d; use fewer metrics per resource", len(actions), maxTransaction)
	}
	_, err = table.SubmitTransaction(ctx, actions, nil)
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return err
	}
	body, unread := io.ReadAll(io.LimitReader(response.RawResponse.Body, maxAnswer))
	if unread != nil {
		return err
	}
	found := code.FindSubmatch(body)
	if found == nil {
		return err
	}
	switch string(found[1]) {
	case "UpdateConditionNotSatisfied", "EntityAlreadyExists":
		return autoscale.ErrConflict
	case "ResourceNotFound", "EntityNotFound":
		return errRowGone
	}
	return fmt.Errorf("transaction refused: %s", found[1])
}
