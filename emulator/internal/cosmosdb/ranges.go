package cosmosdb

import (
	"net/http"
	"strconv"
	"strings"
)

type rangeBody struct {
	RID      string   `json:"_rid"`
	ID       string   `json:"id"`
	Etag     string   `json:"_etag"`
	Min      string   `json:"minInclusive"`
	Max      string   `json:"maxExclusive"`
	Prefix   int      `json:"ridPrefix"`
	Self     string   `json:"_self"`
	Fraction float64  `json:"throughputFraction"`
	Status   string   `json:"status"`
	Parents  []string `json:"parents"`
	Seconds  int64    `json:"_ts"`
	LSN      uint64   `json:"lsn"`
}

type rangesBody struct {
	RID    string      `json:"_rid"`
	Ranges []rangeBody `json:"PartitionKeyRanges"`
	Count  int         `json:"_count"`
}

// readRanges returns the partition key ranges; for an incremental feed those since the
// client's etag, or 304 if there are none.
func (c *call) readRanges(owner *Container) *failure {
	c.charge = chargeMetadata
	owner.mu.RLock()
	if owner.closed {
		owner.mu.RUnlock()
		return failNotFound()
	}
	generation := owner.generation
	since := uint64(0)
	if tag := strings.Trim(c.r.Header.Get("If-None-Match"), `"`); tag != "" {
		since, _ = strconv.ParseUint(tag, 10, 64) // an etag of another server: all ranges are new
		if since > generation {
			since = 0
		}
	}
	if c.r.Header.Get("A-Im") == "" && since != generation {
		since = 0
	}
	body := rangesBody{RID: owner.rid, Ranges: []rangeBody{}}
	for _, p := range owner.ranges {
		if p.generation <= since {
			continue
		}
		number, _ := strconv.ParseUint(p.id, 10, 32) // always a number
		rid := string(appendRID(nil, owner.prefix, number+2, rangeKind))
		parents := p.parents
		if parents == nil {
			parents = []string{}
		}
		body.Ranges = append(body.Ranges, rangeBody{
			RID: rid, ID: p.id, Etag: etag(p.generation, 0), Min: p.bounds.Min, Max: p.bounds.Max, Prefix: int(number), Self: owner.self + "pkranges/" + rid + "/",
			Fraction: 1 / float64(len(owner.ranges)), Status: "online", Parents: parents, Seconds: owner.seconds, LSN: generation,
		})
	}
	body.Count = len(body.Ranges)
	owner.mu.RUnlock()
	h := c.w.Header()
	h["etag"] = []string{`"` + strconv.FormatUint(generation, 10) + `"`}
	h["x-ms-item-count"] = []string{strconv.Itoa(body.Count)}
	if since == generation {
		return c.answer(http.StatusNotModified, nil)
	}
	return c.answer(http.StatusOK, mustJSON(body))
}
