package sluice

import "github.com/sluice-go/sluice/internal/engine/stream"

// Rate is how many records a second [AtLeastOnce] may send, over all partitions of all
// consumers that share it, retries included. Every one-second window of grants stays at or
// below it; with enough records waiting, none is noticeably below. The bound is on grants,
// not on arrivals: the way to the store can bring requests closer together. It is safe for
// concurrent use.
type Rate struct{ rate stream.Rate }

// NewRate returns a rate of 1 to 1,000,000 records a second for one process.
func NewRate(perSecond int) (*Rate, error) {
	r := new(Rate)
	if err := r.rate.Init(perSecond, false); err != nil {
		return nil, err
	}
	return r, nil
}

// NewClusterRate returns a rate that all processes of a consumer group keep together
// without talking to each other. Each partition has a share, and the owner of the
// partition may use it; the shares are whole numbers that add up to perSecond. Every
// process must state the same rate, which must be at least the number of partitions.
// The share of a partition that is idle or has no owner is not used, so a cluster whose
// partitions are filled unevenly runs below the rate, never above it. An owner waits a
// second before it uses a share that belonged to another.
//
// If partitions are added to the topic, the shares of a process become smaller when it
// acquires one of them. Processes that acquire none must be restarted; otherwise all
// together exceed the rate.
func NewClusterRate(perSecond int) (*Rate, error) {
	r := new(Rate)
	if err := r.rate.Init(perSecond, true); err != nil {
		return nil, err
	}
	return r, nil
}

// Set changes the rate while it is in use.
func (r *Rate) Set(perSecond int) error { return r.rate.Set(perSecond) }
