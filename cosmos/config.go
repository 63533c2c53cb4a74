package cosmos

import (
	"cmp"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Mode is how documents travel.
type Mode byte

const (
	// Bulk sends up to [Config.MaxOperations] documents of one physical
	// partition in one request, which the account carries out one by one: each
	// has an outcome of its own. That is what the .NET, Java and JavaScript
	// SDKs call bulk.
	Bulk Mode = iota
	// Point sends each document in a request of its own. It is there to be
	// compared with.
	Point
)

// Config says how the sink writes. The zero value is ready to use.
type Config struct {
	// Mode is Bulk by default.
	Mode Mode

	// MaxOperations is how many documents go in one request: 1 to 100, the
	// account's limit. Default: 100.
	MaxOperations int

	// MaxBytes is how long a request may be. Default and limit of the
	// account: 2 MB. A document that is longer goes alone.
	MaxBytes int

	// FlushAfter is how long a document waits for others to fill a batch.
	// Default: 1 s. While nothing is on its way to its physical partition, it
	// waits for a hundredth of that only.
	FlushAfter time.Duration

	// Concurrency is how many requests may be on their way to one physical
	// partition at once. The sink begins with one, adds more while the account
	// keeps up, and halves them when it answers 429. Default: 8, for [Point]
	// 64.
	Concurrency int

	// RU is the request units per second that the sink may use of the
	// container's, shared evenly by the physical partitions, as Azure shares
	// them. It is paced with the costs that the account reports. Default: no
	// limit but the account's, found by its answers 429.
	RU float64

	// Timeout is how long to wait for an answer. It has to lie within a third
	// or so of the partitions' lease. Default: 10 s.
	Timeout time.Duration

	// CachedVersions is how many documents' versions the sink remembers, at least,
	// for conditional writes, about 200 bytes each. Default: 50,000.
	CachedVersions int

	// Client are options of the SDK: cloud, preferred regions, transport,
	// telemetry. Its retries are always off: every attempt is the engine's to
	// count. The default transport keeps its connections.
	Client azcosmos.ClientOptions
}

const (
	maxOperations = 100
	maxBytes      = 2_000_000
)

func (c *Config) resolve() (Config, error) {
	var r Config
	if c != nil {
		r = *c
	}
	concurrency := 8
	if r.Mode == Point {
		r.MaxOperations, concurrency = 1, 64
	}
	r.MaxOperations = cmp.Or(r.MaxOperations, maxOperations)
	r.MaxBytes = cmp.Or(r.MaxBytes, maxBytes)
	r.FlushAfter = cmp.Or(r.FlushAfter, time.Second)
	r.Concurrency = cmp.Or(r.Concurrency, concurrency)
	r.Timeout = cmp.Or(r.Timeout, 10*time.Second)
	r.CachedVersions = cmp.Or(r.CachedVersions, 50_000)
	switch {
	case r.Mode > Point:
		return r, fmt.Errorf("mode %d: no such mode", r.Mode)
	case r.MaxOperations < 1 || r.MaxOperations > maxOperations:
		return r, fmt.Errorf("%d operations per request: 1 to %d", r.MaxOperations, maxOperations)
	case r.MaxBytes < 1 || r.MaxBytes > maxBytes:
		return r, fmt.Errorf("%d bytes per request: 1 to %d", r.MaxBytes, maxBytes)
	case r.FlushAfter < 0:
		return r, fmt.Errorf("flush after %v: must be positive", r.FlushAfter)
	case r.Concurrency < 1 || r.Concurrency > 1024:
		return r, fmt.Errorf("%d requests at once: 1 to 1024", r.Concurrency)
	case !(r.RU >= 0) || r.RU > 1e7:
		return r, fmt.Errorf("%v RU/s: 0 (no limit) to 1e7", r.RU)
	case r.Timeout < 0:
		return r, fmt.Errorf("timeout %v: must be positive", r.Timeout)
	case r.CachedVersions < 0:
		return r, fmt.Errorf("remember %d versions: must be positive", r.CachedVersions)
	}
	return r, nil
}

// idleFlushAfter is how long a document waits for others while nothing is on its way.
func (c *Config) idleFlushAfter() time.Duration { return c.FlushAfter / 100 }
