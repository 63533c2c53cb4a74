// Package driver declares what the engine needs from logs and stores: the interfaces that a driver
// implements, and the data that they exchange.
//
// Programs that consume events need package sluice alone. It repeats, under its own name, each type
// that a handler, a hook or an operator's program uses.
//
// # How to write a driver
//
// Which interfaces a driver implements depends on what it connects to:
//
//   - a log: [Source] and [Reader];
//   - leases, for every delivery: [LeaseStore];
//   - a database that handlers write to, for sluice.Transactional: [TxStore]. Its handlers write
//     through the driver's own type Tx;
//   - checkpoints and dead letters apart from the effects, for sluice.AtLeastOnce and sluice.Batches:
//     [AtLeastOnceStore], which is [CheckpointStore] and [DeadLetterQueue]. They may be two drivers;
//   - the commands and the dashboard, for these deliveries: [DeadLetterStore].
//
// sluice.Replay needs a [Source] and a [LeaseStore] only. A store may implement several of these on
// one type; Claim, Leave, Read, Reset and Due are the same in all of them.
//
// The errors of this package say what happened; after any other error the engine assumes an outage
// and tries again. It relies most on these rules:
//
//   - Each write under a [Lease] is fenced. The store compares owner and epoch in the same atomic
//     operation that writes; reading first and writing then is not enough.
//   - After Claim has returned, no transaction or request of an earlier owner can change the
//     checkpoint. A database that can end the transaction of a paused owner should do so.
//   - If a commit was sent and no answer arrived, the error is [ErrUnknown]: never nil, and never an
//     error that means that nothing was written.
//   - The store's clock alone decides whether leases have expired and redrives are due.
//   - Names, keys and errors can be any text. Text that the store cannot hold is changed, and does
//     not fail the write; identity and body stay exact.
//
// Package storetest has a conformance suite for each interface, which calls it as the engine does,
// including races, lost answers and owners that come back: TestSource, TestLeases, TestTxStore,
// TestCheckpoints, TestDeadLetterQueue, TestDeadLetterStore. A driver that passes its suites can be
// used with the engine. In a suite's harness a driver states in which points it may differ.
//
// The drivers in memory of package sluicetest are the reference: Hub for a log, Leases, and Store,
// which implements all the interfaces of stores in a few hundred lines. The example shows the
// smallest driver of a log.
package driver
