// Package sluicetest tests programs that use Sluice.
//
//   - [Run] delivers events to a handler through the real engine and returns the result.
//   - [Hub], [Leases] and [Store] are drivers in memory: a log, a lease store, and a database with
//     checkpoints and dead letters. They wait on channels and timers only, so that they can be used in
//     a bubble of testing/synctest, in virtual time; there they must be made inside the bubble.
//   - [Faults] makes a [Store] fail on purpose, and [Store.Snapshot] loses what it has committed.
//
// The conformance suites for authors of drivers are in package storetest. The drivers in memory
// pass them, and are the reference for new drivers.
package sluicetest
