package main

// exceptions are functions and methods whose sleeps and comparisons are allowed, each with the
// reason.
var exceptions = map[name]string{
	{"autoscale/expression", "FuzzExpression"}:                     "20 seconds bound what takes microseconds: an expression that has no end",
	{"cosmos", "deliver"}:                                          "waits as long as a sink asks before it tries again, and until all is written",
	{"cosmos", "TestConcurrencyAdapts"}:                            "a round trip takes a while, so that requests overlap; how long does not matter",
	{"cosmos", "race"}:                                             "answers come in another order; how late does not matter",
	{"cosmos", "TestEmulatorZombie"}:                               "spreads splits over the writes; how long they take does not matter",
	{"cmd/sluice/internal/demo", "TestFlightsLeaveInTheLastHours"}: "compares times in data, hours wide",
	{"cmd/sluice/internal/proof/bench", "TestNumberedHasItsSize"}:  "compares a time that was written with what is read",
	{"cmd/sluice/internal/proof/bench", "TestReadingHasItsSize"}:   "compares a time that was written with what is read",
	{"cmd/sluice/internal/proof/docs", "check"}:                    "a shell or an interpreter reads a block; how long that takes does not matter",
	{"cmd/sluice/internal/proof/docs", "TestGo"}:                   "the compiler reads the blocks; how long that takes does not matter",
	{"storetest", "leaseChecks"}:                                   "a lease lasts this long at least: a slow machine takes longer",
	{"emulator", "TestFaultsPass"}:                                 "a delay takes this long at least: a slow machine takes longer",
	{"emulator/internal/cosmosdb", "TestFaults"}:                   "a delay takes this long at least: a slow machine takes longer",
	{"eventhub", "TestPrefetchBytesOfLargeEvents"}:                 "where the machine is too slow to send for 50 ms, fewer bytes come",
}
