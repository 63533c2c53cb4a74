// Package config reads the YAML file of an autoscaler and opens what it names:
// sources, target, state and queues.
//
//	c, err := config.Load("autoscale.yaml")
//	parts, err := c.Open(ctx, config.AllParts, nil)
//	defer parts.Close(ctx)
//	err = parts.Run(ctx)
//
// # The file
//
// A file names metrics, a target, and the rule between them:
//
//	metrics:
//	  backlog:
//	    servicebus:
//	      connection: ${SERVICEBUS_CONNECTION_STRING}
//	      queue: orders
//	target:
//	  kubernetes: {kind: Deployment, name: orders}
//	rule: {metric: backlog, upper: 500, lower: 300, min: 1, max: 10}
//
// All keys, with types, defaults and examples, are in docs/reference/autoscale.md, in
// `sluice help autoscale-file`, and in [Reference], from which both are made.
//
// Package expression documents the language of expressions. In expressions,
// commands and queries, ${NAME} has no special meaning; in all other values it is
// an environment variable, as in pipelines. A file that holds a key or password is
// refused.
//
// Several files, each with a resource of its own, can run in one process: see [LoadGroup].
// They can share a state, and so can processes.
//
// With state azure, parts that run as separate processes are joined by queues in the same
// account; with postgres, by queues in the same database; with sqlite, by queues in the same
// file, on one machine.
package config
