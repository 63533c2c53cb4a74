// Package storetest has the conformance suites for authors of drivers: one for each interface of
// package driver, and one for driver.Sink.
//
//	func TestTxStore(t *testing.T) {
//		storetest.TestTxStore(t, func(t testing.TB) storetest.TxHarness[*mydb.Tx] {
//			store := open(t) // an empty database
//			return storetest.TxHarness[*mydb.Tx]{Store: store, DeadLetters: store, Put: …, Effects: …, Break: …}
//		})
//	}
//
// A suite calls the driver as the engine does, including races, owners that come back after their
// lease expired, and contexts that end. Every case asks for a driver with nothing stored. Where
// drivers may differ, the harness has a field Features to say so.
//
//   - [TestSource]: driver.Source
//   - [TestLeases]: driver.LeaseStore
//   - [TestTxStore]: driver.TxStore
//   - [TestCheckpoints]: driver.CheckpointStore
//   - [TestDeadLetterQueue]: driver.DeadLetterQueue
//   - [TestDeadLetterStore]: driver.DeadLetterStore, over a TxStore
//   - [TestSink]: driver.Sink
//
// The suites themselves are tested in package sluicetest: every case fails for at least one driver
// that is broken on purpose.
package storetest
