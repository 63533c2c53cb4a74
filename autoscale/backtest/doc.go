// Package backtest runs a rule on recorded metrics: it shows what the rule would
// have decided and, with a simple model of how much an instance processes, how the
// backlog would have moved.
//
//	recording, err := backtest.Read("load.csv", file)
//	result, err := backtest.Run(&resource, recording, &backtest.Model{Backlog: "backlog", Load: "arrivals", DrainRate: 50})
//	err = backtest.Plot(out, result)
package backtest
