package mutants

// observers are the mutants of what watches a consumer: published checkpoints, metrics, warnings.
var observers = []Mutant{
	// Published checkpoints.
	{Name: "the checkpoint of a lost partition is published", File: "internal/publisher/publisher.go",
		Old: "		delete(p.due, o.Partition) // another owner may be further\n", New: "",
		Test: testArgs("TestLostWhileItFails", "./internal/publisher")},
	{Name: "a checkpoint that is stored during a publication is not published", File: "internal/publisher/publisher.go",
		Old: "!failed && now.Position == c.Position && now.Epoch", New: "!failed && now.Epoch",
		Test: testArgs("TestNewerWhileItIsPublished", "./internal/publisher")},
	{Name: "the start is not published", File: "internal/publisher/publisher.go",
		Old: "if p.held[o.Partition] == (Checkpoint{driver.Unset, o.Epoch, true}) {", New: "if false {",
		Test: testArgs("TestStartIsPublished", "./internal/publisher")},
	{Name: "where reading begins is published as a checkpoint", File: "internal/publisher/publisher.go",
		Old: "if p.held[o.Partition] == (Checkpoint{driver.Unset, o.Epoch, true}) {", New: "if true {",
		Test: testArgs("TestStartIsPublished", "./internal/publisher")},
	{Name: "mirror: a former owner moves the copy back", File: "blobstore/mirror.go",
		Old: "case has.ours && has.epoch <= c.Epoch:", New: "case has.ours:",
		Test: testArgs("TestMirror", "./blobstore"), Needs: "azurite"},
	{Name: "mirror: the checkpoint of another program is moved back", File: "blobstore/mirror.go",
		Old: "case has.sequence > c.Position.Sequence:", New: "case false:",
		Test: testArgs("TestMirrorLeavesOthers", "./blobstore"), Needs: "azurite"},
	{Name: "mirror: a copy that is ahead of a restored store is not reported", File: "blobstore/mirror.go",
		Old: "case has.ours && has.sequence > c.Position.Sequence:", New: "case false:",
		Test: testArgs("TestMirrorAfterARestore", "./blobstore"), Needs: "azurite"},

	// Checks of a consumer group from outside.
	{Name: "dead letters are counted again at once after a slow count", File: "health/watcher.go",
		Old: "w.countAgain = now.Add(countRest * now.Sub(began))", New: "w.countAgain = now.Add(0 * now.Sub(began))",
		Test: testArgs("TestSlowCount", "./health")},
	{Name: "dead letters are counted without a time limit", File: "health/watcher.go",
		Old: "context.WithTimeout(ctx, countTimeout)", New: "context.WithCancel(ctx)",
		Test: testArgs("TestSlowCount", "./health")},
	{Name: "an old number of dead letters is exported for ever", File: "sluiceotel/watch.go",
		Old: "return recent(o.watched), recent(o.counted)", New: "return recent(o.watched), o.counted",
		Test: testArgs("TestWarningsAndDeadLetters", "./sluiceotel")},
	{Name: "the lag of an older check replaces the consumer's", File: "internal/partitionstate/partitionstate.go",
		Old: " && p.LagAt.Before(at) {", New: " {",
		Test: testArgs("TestLagOfEveryPartition", "./sluiceotel")},
	{Name: "a process exports the lag of another's partition", File: "sluiceotel/partition.go",
		Old: "case seen != nil && (p.Held || seen.Owner == \"\"):", New: "case seen != nil:",
		Test: testArgs("TestLagOfEveryPartition", "./sluiceotel")},
}
