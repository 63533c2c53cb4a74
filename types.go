package sluice

import "github.com/sluice-go/sluice/driver"

// What handlers, hooks and operators' programs handle. Drivers for logs and
// stores make these values, so package driver declares them.
type (
	// Event is one record of a partition as the log returned it. A handler must
	// not change it: the engine delivers the events of a failed batch again.
	Event = driver.Event
	// Batch is a run of events of one partition in the log's order, never empty. With
	// [Transactional] all of it takes effect in one transaction, or none of it.
	Batch = driver.Batch
	// Header is one header of an event, in a log that has headers in order.
	Header = driver.Header
	// Position is a place in a partition, directly after the event that it names.
	Position = driver.Position
	// Start is where a partition without a checkpoint begins. Make one with
	// [Earliest], [Latest], [At], [Ago], [FromSequence], [FromOffset] or
	// [ParseStart].
	Start = driver.Start
	// Group names one consumer group of one topic.
	Group = driver.Group
	// Topic is a topic and its partitions.
	Topic = driver.Topic
	// Lease is the right to read one partition for a consumer group.
	Lease = driver.Lease
	// Checkpoint says how far a consumer group has got in a partition.
	Checkpoint = driver.Checkpoint
	// DeadLetter is an event that could not be handled.
	DeadLetter = driver.DeadLetter
	// DeadLetterFilter selects dead letters.
	DeadLetterFilter = driver.DeadLetterFilter
	// DeadLetterStatus says whether a dead letter waits, is to be redriven, or
	// was discarded.
	DeadLetterStatus = driver.DeadLetterStatus
)

// The states of a dead letter.
const (
	StatusDead      = driver.StatusDead
	StatusRedrive   = driver.StatusRedrive
	StatusDiscarded = driver.StatusDiscarded
)
