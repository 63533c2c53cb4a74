package batch

import (
	"context"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

type transactional[Tx any] struct {
	txStore driver.TxStore[Tx]
	handler func(ctx context.Context, tx Tx, b driver.Batch) error
}

// Transactional makes the delivery that sluice.Transactional describes.
func Transactional[Tx any](store driver.TxStore[Tx], handler func(ctx context.Context, tx Tx, b driver.Batch) error) partition.Delivery {
	return &transactional[Tx]{store, handler}
}

func (d *transactional[Tx]) Store() any { return d.txStore }

// FillsBatches marks a delivery to which Settings.FillFor applies.
func (d *transactional[Tx]) FillsBatches() {}

func (d *transactional[Tx]) Deliver(a *partition.Assignment) error {
	return d.newWorker(a).deliverAll()
}

func (d *transactional[Tx]) Redrive(a *partition.Assignment) (applied, failed int, err error) {
	return d.newWorker(a).redriveAll()
}

func (d *transactional[Tx]) RedriveDue(ctx context.Context, group driver.Group, partition string) (bool, error) {
	due, err := d.txStore.Due(ctx, group, partition, 1)
	return len(due) > 0, err
}

func (d *transactional[Tx]) newWorker(a *partition.Assignment) *worker[Tx] {
	a.Progress.Every.Store(int64(a.Settings.FillFor))
	w := newWorker(a, d.txStore, d.handler)
	w.policy = workerPolicy{stamps: true, trials: true, report: a.Observe, witnesses: laterEvents[Tx]{w}}
	return w
}
