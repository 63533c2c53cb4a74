package driver

// Batch is a run of events of one partition in the log's order, never empty. With
// Transactional all of it takes effect in one transaction, or none of it.
type Batch struct {
	Group       Group
	Incarnation string // of the topic, when the events were sent
	Partition   string
	Epoch       int64 // of the lease under which the batch is delivered
	Redriven    bool  // the events are dead letters being redriven, out of the partition's order
	Attempts    int   // attempts at an event of the batch that failed before; of several events, the most
	Events      []*Event
}
