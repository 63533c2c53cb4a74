package engine

import "time"

// What the deliveries have in common where events fail.
const (
	// BrakeAfter is how many events in a row fail, without one success, until the partition
	// is held.
	BrakeAfter = 20
	// HeldAttempts is how often an event that keeps all others from being tried is tried again
	// while the partition is held. Then it becomes a dead letter.
	HeldAttempts = 10
	// SearchFor bounds the search for an event that succeeds where others fail.
	SearchFor = 5 * time.Second
	// RedrivePage is how many dead letters on redrive are looked up at a time.
	RedrivePage = 100
	// RedriveFor is how long a round of redrives may keep the partition's events waiting: the
	// redrive that is in progress then is the round's last. The events after the checkpoint get as
	// much time before the next round. If they had more, because a batch takes long, the next round
	// has as much more.
	RedriveFor = time.Second
)
