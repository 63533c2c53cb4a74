// Package backtest plays recorded metrics to a rule: what it would have decided,
// and, with a simple model of what an instance gets done, what that would have
// made of the backlog.
//
//	recording, err := backtest.Read("load.csv", file)
//	result, err := backtest.Run(&resource, recording, &backtest.Model{Backlog: "backlog", Load: "arrivals", Drain: 50})
//	err = backtest.Plot(out, "svg", result)
package backtest
