// Package webhook posts events in batches to an HTTP endpoint, such as a function or a service
// in any language: a [driver.Sink].
//
//	sink, err := webhook.New("https://example.com/api/flights", nil)
//	…
//	delivery := sluice.AtLeastOnce(store, webhook.Messages, sink, nil)
//
// Where the events of a partition must keep their order, the same sink is a handler, which posts
// one batch of a partition after the other:
//
//	delivery := sluice.Batches(store, sink.Handler(webhook.Messages), nil)
//
// # Requests
//
// A request holds events of one partition, in ascending order of their sequence numbers: a batch
// of CloudEvents, a JSON array, or JSON lines (see [Format]). It is sent when it is full, or when
// its oldest event has waited for [Config].FlushAfter. Which events are never in flight together
// is the engine's decision, see sluice.Ordering.
//
// An event is posted at least once. Its source and its id are the same each time, so a receiver
// that stores them in the transaction of its own effect makes that effect exactly once.
// docs/http.md describes headers and bodies, with two such receivers.
//
// # Answers
//
// The sink never retries by itself. Its error says what the engine must do.
//
//   - 2xx: the events are done, except those that the answer names:
//     {"failed":[{"index":3,"error":"…"}]}. They are rejected ([driver.Reject]). 207 must have
//     such a body.
//   - 400, 409, 413, 422 and every other 4xx that is not listed below: the batch is halved until
//     the event that causes it is alone. That event is rejected.
//   - 408, 425, 429, 5xx, time-outs, lost connections, redirects (which are never followed),
//     and answers that cannot be read: [driver.Outage]. A Retry-After header is obeyed for the
//     whole sink, up to [Config].MaxRetryAfter.
//   - 401, 403, 404, 405, 407, 410, 421, 426: they are about the endpoint, not about an event,
//     so they are outages too.
//
// A single event can make a receiver fail in the ways that look like an outage, for example with
// 500. So the events of a failed batch go in batches of half the size, in the end alone. An event
// that fails alone is to blame if the receiver has accepted something since its failure before; if
// nothing new was sent, the sink posts again what the receiver has accepted last. The event is
// retried a few times ([driver.RetryAfter]), then its failures count as attempts
// (sluice.Config.Attempts). While the receiver accepts nothing, nothing becomes a dead letter.
package webhook
