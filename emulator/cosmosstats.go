package emulator

import "github.com/sluice-go/sluice/emulator/internal/cosmosdb"

// CosmosWrite is a document that was written or deleted.
type CosmosWrite struct {
	Database, Container string
	Range               string // the id of the partition key range
	ID                  string
	Key                 string // the partition key in JSON: ["a"]
	// Body is the document as the client sent it, without system properties and the
	// closing brace. It is only valid during the call. It is nil if the document was
	// deleted.
	Body     []byte
	Replaced bool // the document existed before
}

// CosmosStats are the counts of a [Cosmos] since its start.
type CosmosStats struct {
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

// CosmosRangeStats are the counts of a partition key range since it exists.
type CosmosRangeStats struct {
	ID        string  `json:"id"`
	Min       string  `json:"min"` // effective partition keys: from Min, inclusive,
	Max       string  `json:"max"` // to Max, exclusive
	Documents int     `json:"documents"`
	Bytes     int64   `json:"bytes"` // of the documents as clients sent them
	Writes    int64   `json:"writes"`
	Spent     float64 `json:"spent"` // RU
}

// CosmosContainerStats are the counts of a container.
type CosmosContainerStats struct {
	Documents int `json:"documents"`
	// Spent is the RU of all partition key ranges, including those that were split.
	Spent float64 `json:"spent"`
	// Memory is how many bytes the documents take, outside of the Go heap.
	Memory int64              `json:"memory"`
	Ranges []CosmosRangeStats `json:"ranges"`
}

// Stats returns the account's counts since its start.
func (s *Cosmos) Stats() CosmosStats { return CosmosStats(s.account.Stats()) }

// ContainerStats returns the counts of a container and its partition key ranges. It
// returns an error if there is no such container.
func (s *Cosmos) ContainerStats(database, name string) (CosmosContainerStats, error) {
	c, err := s.account.Container(database, name)
	if err != nil {
		return CosmosContainerStats{}, err
	}
	return containerStats(c.Stats()), nil
}

func containerStats(c cosmosdb.ContainerStats) CosmosContainerStats {
	s := CosmosContainerStats{Documents: c.Documents, Spent: c.Spent, Memory: c.Memory}
	for _, r := range c.Ranges {
		s.Ranges = append(s.Ranges, CosmosRangeStats(r))
	}
	return s
}
