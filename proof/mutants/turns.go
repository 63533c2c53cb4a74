package mutants

// turns are the mutants of how redrives and the events behind the checkpoint divide the time.
var turns = []Mutant{
	{Name: "redrives leave the events no turn", File: "internal/engine/batch/redrive.go",
		Old: "p.restUntil = now + p.round", New: "p.restUntil = now",
		Test: worlds, Env: untilCaught},
	{Name: "redrives wait until no event does", File: "internal/engine/batch/worker.go",
		Old: "w.redrives.due && cfg.Clock.Elapsed() >= w.redrives.restUntil && !w.attemptsOnRecord() {", New: "false {",
		Test: worlds, Env: untilCaught},
	{Name: "a long batch costs the redrives their turn", File: "internal/engine/batch/redrive.go",
		Old: "length := engine.RedriveFor + pace.owed", New: "length := engine.RedriveFor",
		Test: testArgs("TestRedrivesAndEventsTakeTurns", "./internal/engine/batch")},
	{Name: "AtLeastOnce: dead letters without bodies leave the events no turn", File: "internal/engine/stream/redrive.go",
		Old: "!mayRead && w.eventsTurn(elapsed())", New: "!mayRead && elapsed() < 0",
		Test: streams, Env: untilCaught},
	{Name: "AtLeastOnce: an event's record waits for those of all redrives", File: "internal/engine/stream/sendqueue.go",
		Old: "(w.events.first == nil || !w.redriven)", New: "(w.events.first == nil || w != nil)",
		Test: streams, Env: untilCaught},
	{Name: "AtLeastOnce: a redrive's record waits for those of all events", File: "internal/engine/stream/sendqueue.go",
		Old: "(len(q.fresh) == 0 || !q.redriven)", New: "len(q.fresh) == 0",
		Test: streams, Env: untilCaught},
}
