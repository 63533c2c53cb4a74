package cosmosdb

import (
	"net/http"
	"strings"
	"time"
)

// AsAzure has the behaviours of accounts on Azure that the zero value leaves out. Package
// emulator documents each.
type AsAzure struct {
	DataPlaneRights bool
	AnswerSize      int // bytes
	RequestSize     int // bytes
	StopOnError     bool
	SlowThroughput  time.Duration
	TwoRegions      bool // package emulator calls ServeRegion then
}

const substatusControlPlane = 5300 // what the request does is for the management API

// checkRights refuses requests with an access token that are for the management API: those that
// change databases and containers, and all about throughput.
func (c *call) checkRights() *failure {
	if !c.bearer || !c.account.cfg.AsAzure.DataPlaneRights {
		return nil
	}
	p := c.path
	management := len(p) > 0 && p[0] == "offers" || len(p) > 0 && len(p) < 5 && c.r.Method != http.MethodGet
	if !management {
		return nil
	}
	return fail(http.StatusForbidden, substatusControlPlane, "Request blocked by Auth emulator : The given request ["+c.r.Method+" /"+strings.Join(p, "/")+
		"] cannot be authorized by AAD token in data plane. Learn more: https://aka.ms/cosmos-native-rbac.")
}

// batchLimit is the maximum size of a batch request in bytes.
func (a *Account) batchLimit() int64 {
	if n := a.cfg.AsAzure.RequestSize; n > 0 {
		return int64(n)
	}
	return maxBatchBody
}

// documentLimit is the maximum size of the body of another write in bytes.
func (a *Account) documentLimit() int64 {
	if n := a.cfg.AsAzure.RequestSize; n > 0 {
		return int64(n)
	}
	return maxBody
}

// answerFull returns the result of an operation of a batch whose result would make the answer
// too large, nil if there is room. The operation isn't carried out. p.mu is held.
func (c *call) answerFull(p *partition, op *operation, w *resultWriter, minimal bool) *result {
	limit := c.account.cfg.AsAzure.AnswerSize
	if limit == 0 {
		return nil
	}
	n := len(w.out) + resultOverhead
	switch {
	case op.verb == verbRead:
		if _, rec := p.find(op.hash, op.keyText, op.id); rec != nil {
			n += rec.bodyLen()
		}
	case op.doc != nil && !minimal:
		n += len(op.doc.body)
	}
	if n <= limit {
		return nil
	}
	return &result{status: http.StatusRequestEntityTooLarge, substatus: substatusResponse, charge: chargeConflict, message: "Response size is too large."}
}

// resultOverhead is how many bytes a result of a batch has beside the document, at most.
const resultOverhead = 512
