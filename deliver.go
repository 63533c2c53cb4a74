package sluice

// Delivery is how events take effect; the constructor's name is the
// guarantee. [Transactional] is the one there is.
type Delivery interface {
	deliver()
}

// Transactional delivers each event's effect exactly once: handler's writes,
// checkpoint and dead letters commit in one transaction of store, fenced by
// the lease's epoch.
func Transactional[Tx any](store TxStore[Tx], handler Handler[Tx]) Delivery {
	return nil
}
