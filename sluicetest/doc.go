// Package sluicetest tests what is written against Sluice.
//
//   - [Run] hands events to a handler through the real engine and returns what
//     came of them.
//   - [Hub], [Leases] and [Store] are the in-memory drivers of the engine's
//     seams. They wait on channels and timers only, so that they can be used in
//     a bubble of testing/synctest, in virtual time; there they must be made
//     inside the bubble.
//   - [TestSource], [TestLeases], [TestTxStore], [TestCheckpointStore],
//     [TestLetterStore], [TestDeadLetters] and [TestSink] are the conformance
//     suites of the seams: every driver passes them, those in memory included.
package sluicetest
