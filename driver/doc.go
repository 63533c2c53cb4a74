// Package driver declares what the engine asks of logs and stores: the seams
// that the author of a driver implements, and the data that crosses them.
//
// A driver for a log implements [Source] and [Reader]. A driver for a store
// implements [LeaseStore], and one or both of [TxStore] (for the transactional
// delivery) and [AtLeastOnceStore] (for the at-least-once delivery); operators'
// commands need [DeadLetterStore]. Package storetest holds a conformance suite
// for each of them; the drivers in this module, such as pgstore, are examples.
//
// Programs that consume events need package sluice alone, which repeats under
// its own name each type that a handler, a hook or an operator's program meets.
package driver
