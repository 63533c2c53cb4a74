// Package autoscale scales what does the work by how much work waits: backlog
// in, instances out, every decision explained.
//
// It has three parts, which run in one process ([New]) or apart, joined by
// queues:
//
//   - a [Collector] reads the metrics of a resource at an interval and sends
//     them as [Point]s;
//   - a [Logic] keeps a [Window] of each metric, asks a [Rule] how many
//     instances there should be, and decides within [Limits];
//   - a [Scaler] carries an [Action] out on a [Target], and sends a [Report] of
//     how many instances there are and of what became of the action.
//
// A rule proposes, the limits dispose: whatever a rule says, the wanted count
// stays between minimum and maximum, nothing is done within a cooldown or while
// an action is under way, and nothing is ever scaled down while one of the
// resource's metrics is missing, stale or disabled. Each decision becomes a
// [Record], also those to leave things as they are.
//
// Queues deliver at least once, and that does no harm: points are told apart by
// metric and time, and actions are numbered, so that each is carried out once.
// The cooldown starts when an action has succeeded, and is the resource's;
// windows are the metric's. Both survive a restart in a [Store].
//
// Reading order: point.go and window.go, rule.go and thresholdrule.go, limits.go,
// decide.go; then collector.go, logic.go, scaler.go, autoscaler.go; and the
// seams: source.go, target.go, store.go, queue.go.
package autoscale
