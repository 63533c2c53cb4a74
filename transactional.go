package sluice

import (
	"errors"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/batch"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// Delivery is how events take effect. Its constructor's name is the guarantee:
// [Transactional], [Batches], [AtLeastOnce] or [Replay].
type Delivery interface {
	// engine returns the delivery as the engine runs it, or what is wrong with its configuration.
	engine() (partition.Delivery, error)
}

// delivery implements [Delivery].
type delivery struct {
	partition.Delivery
	err error
}

func (d delivery) engine() (partition.Delivery, error) { return d.Delivery, d.err }

// Transactional delivers each event's effect exactly once: the handler's
// writes, the checkpoint and the dead letters commit in one transaction of
// store, fenced by the lease's epoch and owner and by the position they start
// from.
//
// Where the events are messages of an [AtLeastOnce] stage that carry a [stamp.Stamp],
// and [Config].StampsFrom names that stage,
// the exactly-once guarantee starts at that stage's events: a message that was
// sent more than once is handled once. Of several messages that share a stamp,
// because an event's properties were copied to each, only the first is handled: see
// [stamp.Stamp].
func Transactional[Tx any](store driver.TxStore[Tx], handler Handler[Tx]) Delivery {
	var err error
	if store == nil || handler == nil {
		err = errors.New("transactional: store or handler is nil")
	}
	return delivery{batch.Transactional(store, handler), err}
}
