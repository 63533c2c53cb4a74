package cosmos

import (
	"cmp"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Mode is how documents are sent.
type Mode byte

const (
	// Bulk sends up to [Config.MaxOperations] documents of one physical partition
	// in one request. The account executes them one by one, and each has an
	// outcome of its own. The .NET, Java and JavaScript SDKs call this bulk.
	Bulk Mode = iota
	// Point sends each document in a request of its own, for comparisons.
	Point
)

// Config has the optional settings of a [Sink]. The zero value is ready to use.
type Config struct {
	// Mode is Bulk by default.
	Mode Mode

	// MaxOperations is the most documents in one request: 1 to 100, the account's
	// limit. Default: 100.
	MaxOperations int

	// MaxBytes is the most bytes in one request. A longer document is sent alone.
	// Default, and the account's limit: 2 MB.
	MaxBytes int

	// FlushAfter is how long a document waits for others to fill a batch. While no
	// request to its physical partition is in flight, it waits only a hundredth
	// of that. Default: 1 s.
	FlushAfter time.Duration

	// Concurrency is the most requests in flight to one physical partition. The
	// sink begins with one, adds more while the account keeps up, and halves them
	// after a 429. Default: 8, for [Point] 64.
	Concurrency int

	// RU is the request units per second that the sink may use. Each physical
	// partition gets an equal share, as in Azure. Requests are paced with the
	// charges that the account reports. Default: no limit, so that the account's
	// own limit shows in 429 responses.
	RU float64

	// Timeout bounds each request. It should be at most about a third of the
	// duration of a lease. Default: 10 s.
	Timeout time.Duration

	// CachedVersions is the least number of documents whose versions (ETags) the
	// sink caches for conditional writes. One takes about 200 bytes, and at most
	// twice as many are kept. Default: 50,000.
	CachedVersions int

	// Conditional says that the documents will have a [Source]. [Sink.Check] then
	// refuses an account with multi-region writes; without it, the first document with
	// a Source fails there. Default: false.
	Conditional bool

	// Client has options of the SDK: cloud, preferred regions (with
	// multi-region writes, in this order; otherwise there is only one region to write
	// to), transport, telemetry. Its retries are always off, because the engine counts every
	// attempt. The default transport keeps its connections.
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
		return r, fmt.Errorf("%d cached versions: must be positive", r.CachedVersions)
	}
	return r, nil
}

// idleFlushAfter returns how long a document waits while no request is in flight.
func (c *Config) idleFlushAfter() time.Duration { return c.FlushAfter / 100 }
