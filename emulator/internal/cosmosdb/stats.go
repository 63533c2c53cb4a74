package cosmosdb

import (
	"slices"
	"sync/atomic"
)

type stats struct {
	connections atomic.Int64
	open        atomic.Int64
	requests    atomic.Int64
	operations  atomic.Int64
	throttled   atomic.Int64
	refused     atomic.Int64
}

// Stats are an account's counts since its start.
type Stats struct {
	// Connections is how many were accepted: clients that reuse theirs make few.
	Connections int64 `json:"connections"`
	// Open is how many there are now.
	Open int64 `json:"open"`
	// Requests is the number of HTTP requests.
	Requests int64 `json:"requests"`
	// Operations on documents that were carried out or refused, those of batches each.
	Operations int64 `json:"operations"`
	// Throttled operations were answered with 429, whether for want of throughput or by a fault.
	Throttled int64 `json:"throttled"`
	// Unauthorized requests were answered with 401 or 403.
	Unauthorized int64 `json:"unauthorized"`
}

// Stats returns the account's counts.
func (a *Account) Stats() Stats {
	return Stats{
		Connections: a.stats.connections.Load(), Open: a.stats.open.Load(), Requests: a.stats.requests.Load(), Operations: a.stats.operations.Load(),
		Throttled: a.stats.throttled.Load(), Unauthorized: a.stats.refused.Load(),
	}
}

// RangeStats are the counts of a physical partition since it came to be.
type RangeStats struct {
	ID        string  `json:"id"`
	Min       string  `json:"min"`
	Max       string  `json:"max"`
	Documents int     `json:"documents"`
	Bytes     int64   `json:"bytes"` // of the documents as they were written
	Writes    int64   `json:"writes"`
	Spent     float64 `json:"spent"` // RU
}

// ContainerStats are a container's counts.
type ContainerStats struct {
	Documents int `json:"documents"`
	// Spent is the RU of all partitions, also of those that were split.
	Spent float64 `json:"spent"`
	// Memory is what the documents take outside of the Go heap, in bytes.
	Memory int64        `json:"memory"`
	Ranges []RangeStats `json:"ranges"`
}

// Stats returns the container's counts.
func (c *Container) Stats() ContainerStats {
	c.mu.RLock()
	s, list := ContainerStats{Spent: c.spent}, slices.Clone(c.ranges)
	c.mu.RUnlock()
	heaps := make(map[*heap]bool) // partitions of one that was split share it
	for _, p := range list {
		p.mu.Lock()
		r := RangeStats{ID: p.id, Min: p.bounds.Min, Max: p.bounds.Max, Documents: p.order.live, Bytes: p.bytes, Writes: p.writes, Spent: p.budget.total()}
		p.mu.Unlock()
		s.Documents += r.Documents
		s.Spent += r.Spent
		s.Ranges = append(s.Ranges, r)
		if !heaps[p.heap] {
			heaps[p.heap] = true
			s.Memory += p.heap.size()
		}
	}
	return s
}
