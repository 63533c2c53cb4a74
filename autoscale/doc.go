// Package autoscale runs an autoscaler: it reads metrics such as a backlog,
// decides by a rule how many instances of a resource there should be, scales the
// resource, and records each decision with its reason.
//
// It has three parts. They run in one process ([New]) or in processes of their
// own, and queues join them:
//
//		 Source   Source                                   Target
//		    │        │                                        ▲
//		    ▼        ▼                                        │
//		┌──────────────┐ metrics ┌──────────────┐ actions ┌───┴────┐
//		│  Collector   ├────────▶│    Logic     ├────────▶│ Scaler │
//		└──────────────┘  Point  │ Rule, Limits │ Action  └──┬──┬──┘
//		                         └───┬──────▲───┘            │  │
//		                             │      │    reports     │  │
//		                             │      └────────────────┘  │
//		                             ▼           Report         ▼
//		                           Store                      Store
//
//	  - A [Collector] reads the metrics of a resource at an interval and sends them
//	    as [Point]s.
//	  - A [Logic] keeps a [Window] of each metric, asks a [Rule] for the number of
//	    instances, decides within [Limits], and sends an [Action].
//	  - A [Scaler] carries the action out on a [Target], and sends a [Report] with
//	    the present number of instances and the [Outcome] of the last action.
//
// A rule only proposes. Whatever it says, the number of instances stays between
// minimum and maximum, nothing is scaled during a cooldown or while an action is
// in progress, and nothing is scaled down while one of the resource's metrics is
// missing, stale or disabled. Each decision becomes a [Record], a decision to
// change nothing too.
//
// Queues deliver at least once. Duplicates do no harm: points are identified by
// metric and time, actions by number, so each action is carried out once. A
// cooldown starts when an action has succeeded and applies to the resource;
// windows belong to a metric. A [Store] keeps both, so they survive a restart.
//
// Reading order: point.go and window.go; rule.go and thresholdrule.go; limits.go;
// decide.go, which makes the decisions; then collector.go, logic.go, scaler.go
// and autoscaler.go; and the interfaces to implement: source.go, target.go,
// store.go, queue.go.
package autoscale
