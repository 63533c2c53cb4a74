package cosmosdb

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"
)

var errTTL = errors.New("a time to live must be a whole number of seconds from 1 to 2147483647, or -1, which means that documents never expire")

// sweepEvery is after how many writes of a partition its expired documents are removed.
const sweepEvery = 1000

// invalidTTL is the time to live of a document whose property isn't one. It matters only in a
// container that has time to live.
const invalidTTL = math.MinInt32

// parseTTL parses the property ttl or defaultTtl: seconds, or -1.
func parseTTL(value []byte) (int32, error) {
	n, err := strconv.ParseInt(string(value), 10, 32)
	if err != nil || n < -1 || n == 0 {
		return invalidTTL, errTTL
	}
	return int32(n), nil
}

// parseDefaultTTL parses a container's time to live, 0 if there is none.
func parseDefaultTTL(value json.RawMessage) (int32, error) {
	if len(value) == 0 || string(value) == "null" {
		return 0, nil
	}
	return parseTTL(value)
}

// expired reports whether a document's time to live has passed.
func (c *Container) expired(rec record, now time.Time) bool {
	ttl := c.defaultTTL.Load()
	if ttl == 0 {
		return false
	}
	if own := rec.ttl(); own != 0 && own != invalidTTL {
		ttl = own
	}
	return ttl > 0 && now.Unix() >= int64(rec.seconds())+int64(ttl)
}

// swept is when a partition was swept: the second, and the container's time to live then.
type swept struct {
	second int64
	ttl    int32
}

// sweep removes the partition's expired documents, once a second, because documents expire at
// whole seconds. p.mu is held.
func (c *Container) sweep(p *partition, now time.Time) {
	at := swept{now.Unix(), c.defaultTTL.Load()}
	if at.ttl == 0 || at == p.swept {
		return
	}
	p.swept = at
	var list []ref
	p.order.each(0, func(r ref) bool {
		if c.expired(p.record(r), now) {
			list = append(list, r)
		}
		return true
	})
	for _, r := range list {
		rec := p.record(r)
		p.remove(hashOf(rec.key(), rec.id()), r)
	}
}
