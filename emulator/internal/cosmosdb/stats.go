package cosmosdb

import (
	"slices"
	"sync/atomic"
)

type stats struct {
	connections  atomic.Int64
	open         atomic.Int64
	requests     atomic.Int64
	operations   atomic.Int64
	throttled    atomic.Int64
	unauthorized atomic.Int64
}

// Stats are an account's counts since its start.
type Stats struct {
	// Connections is how many were accepted: clients that reuse theirs make few.
	Connections int64 `json:"connections"`
	// Open is the number of open connections.
	Open int64 `json:"open"`
	// Requests is the number of HTTP requests.
	Requests int64 `json:"requests"`
	// Operations is the number of operations on documents, successful or not. Each
	// operation of a batch counts.
	Operations int64 `json:"operations"`
	// Throttled is the number of operations that were answered with 429, because of the
	// throughput or by a fault.
	Throttled int64 `json:"throttled"`
	// Unauthorized is the number of requests that were answered with 401 or 403.
	Unauthorized int64 `json:"unauthorized"`
}

// Stats returns the account's counts.
func (a *Account) Stats() Stats {
	return Stats{
		Connections: a.stats.connections.Load(), Open: a.stats.open.Load(), Requests: a.stats.requests.Load(), Operations: a.stats.operations.Load(),
		Throttled: a.stats.throttled.Load(), Unauthorized: a.stats.unauthorized.Load(),
	}
}

// RangeStats are the counts of a partition key range since it exists.
type RangeStats struct {
	ID        string  `json:"id"`
	Min       string  `json:"min"`
	Max       string  `json:"max"`
	Documents int     `json:"documents"`
	Bytes     int64   `json:"bytes"` // of the documents as clients sent them
	Writes    int64   `json:"writes"`
	Spent     float64 `json:"spent"` // RU
}

// ContainerStats are a container's counts.
type ContainerStats struct {
	Documents int `json:"documents"`
	// Spent is the RU of all partitions, including those that were split.
	Spent float64 `json:"spent"`
	// Memory is how many bytes the documents take, outside of the Go heap.
	Memory int64        `json:"memory"`
	Ranges []RangeStats `json:"ranges"`
}

// Stats returns the container's counts.
func (c *Container) Stats() ContainerStats {
	c.mu.RLock()
	s, list := ContainerStats{Spent: c.spent}, slices.Clone(c.ranges)
	c.mu.RUnlock()
	arenas := make(map[*arena]bool) // partitions share one after a split
	for _, p := range list {
		p.mu.Lock()
		r := RangeStats{ID: p.id, Min: p.bounds.Min, Max: p.bounds.Max, Documents: p.order.live, Bytes: p.bytes, Writes: p.writes, Spent: p.budget.totalSpent()}
		p.mu.Unlock()
		s.Documents += r.Documents
		s.Spent += r.Spent
		s.Ranges = append(s.Ranges, r)
		if !arenas[p.arena] {
			arenas[p.arena] = true
			s.Memory += p.arena.size()
		}
	}
	return s
}
