// Package sender sends any number of messages in batches that fit.
//
//	hub, err := sender.OpenEventHub(connectionString, "flights", nil)
//	...
//	report, err := sender.New(hub, nil).SendAll(ctx, messages)
//
// # Batches
//
// A key has a partition, by the hash that the service itself uses, and a batch
// goes to a partition: so messages of thousands of keys share a batch, and each
// keeps its key. A partition's messages are packed in the order in which they
// come, each into the batch of the one before if it fits there. No way of
// cutting that order into batches needs fewer of them. Messages without a key
// have batches of their own, each full before the next is begun.
//
// Sizes are those of the encoded messages, headers included, against what the
// link negotiated. For services that don't tell, there is [Estimator].
//
// # Order
//
// The messages of a key arrive in their order: a partition has one batch on its
// way at a time, and the next waits until that one's fate is known. Messages
// without a key have no order, unless [Config.Ordered] asks for one over all.
//
// # Failures
//
// A message that can't be sent, such as one that is too large, is left out, and
// the rest goes. A batch that the service is too busy for, or whose link was
// lost, is sent again after a pause, [Config.Attempts] times in all. If that
// fails, no further batch is begun, and the [Report] tells of each message
// whether it was accepted, was not, or may have been.
//
// A batch sent again after its answer was lost may be there twice. The report
// names those messages too, and [Config.NoRepeats] has such a batch end the
// sending instead.
package sender
