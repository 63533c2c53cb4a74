package cosmosdb

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// autoscale has the settings of a throughput that Azure adapts to the load. The emulator
// always serves the maximum.
type autoscale struct {
	Max    int             `json:"maxThroughput"`
	Policy json.RawMessage `json:"autoUpgradePolicy,omitempty"`
}

type offerBody struct {
	resource
	Version  string `json:"offerVersion"`
	Type     string `json:"offerType"`
	Target   string `json:"resource"`
	TargetID string `json:"offerResourceId"`
	Content  struct {
		Throughput int        `json:"offerThroughput"`
		RUPM       bool       `json:"offerIsRUPerMinuteThroughputEnabled"`
		Autoscale  *autoscale `json:"offerAutopilotSettings,omitempty"`
	} `json:"content"`
}

// offerID returns an offer's id, which is its resource id, too: "off" and the number of
// its container. It is in lower case because clients sign it so.
func (c *Container) offerID() string {
	id := strconv.FormatUint(uint64(c.number), 36)
	return "off" + strings.Repeat("0", max(0, 5-len(id))) + id
}

func (c *Container) offer() offerBody {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id := c.offerID()
	body := offerBody{
		resource: resource{id, id, "offers/" + id + "/", c.etag, c.seconds}, Version: "V2", Type: "Invalid", Target: c.self, TargetID: c.rid,
	}
	body.Content.Throughput = c.throughput
	switch {
	case c.autoscale != nil:
		body.Content.Throughput, body.Content.Autoscale = c.autoscale.Max/10, c.autoscale
	case c.throughput == 0:
		body.Content.Throughput = maxThroughput
	}
	return body
}

func (c *call) allOffers() *failure {
	if c.r.Method != http.MethodGet && !c.isQuery() {
		return c.unsupported()
	}
	var list []json.RawMessage
	for _, owner := range c.account.offers() {
		list = append(list, mustJSON(owner.offer()))
	}
	return c.feed("Offers", "", list)
}

// oneOffer reads or replaces a container's throughput.
func (c *call) oneOffer() *failure {
	var owner *Container
	for _, o := range c.account.offers() {
		if strings.EqualFold(o.offerID(), c.path[1]) {
			owner = o
		}
	}
	if owner == nil {
		return failNotFound()
	}
	owner.settle()
	switch c.r.Method {
	case http.MethodGet:
	case http.MethodPut:
		var in offerBody
		if f := c.decode(&in); f != nil {
			return f
		}
		ru := in.Content.Throughput
		if in.Content.Autoscale != nil {
			ru = in.Content.Autoscale.Max
		}
		if ru < minThroughput || ru > maxThroughput {
			return badRequest("The offer should have a throughput from 400 to 1000000 RU/s.")
		}
		if f := owner.changeThroughput(ru, in.Content.Autoscale); f != nil {
			return f
		}
	default:
		return c.unsupported()
	}
	c.w.Header()["x-ms-offer-replace-pending"] = []string{strconv.FormatBool(owner.pending.Load() != nil)}
	c.w.Header()["x-ms-cosmos-min-throughput"] = []string{strconv.Itoa(minThroughput)}
	body := owner.offer()
	return c.answerResource(http.StatusOK, body.Etag, body)
}

// pendingThroughput is a change of throughput that comes later.
type pendingThroughput struct {
	ru        int
	autoscale *autoscale
	due       time.Time
}

const substatusPending = 3205 // another change of throughput is pending

// changeThroughput changes the throughput as a client asks: at once, unless changes are slow
// and the physical partitions can't serve it.
func (c *Container) changeThroughput(ru int, scale *autoscale) *failure {
	if c.pending.Load() != nil {
		return fail(http.StatusBadRequest, substatusPending, "Another offer replace operation is in progress. Please retry after it is complete.")
	}
	if slow := c.account.cfg.AsAzure.SlowThroughput; slow > 0 && ru > throughputPerPartition*len(c.partitions()) {
		c.pending.Store(&pendingThroughput{ru, scale, c.account.now().Add(slow)})
		return nil
	}
	c.setThroughput(ru, scale)
	return nil
}

// settle makes a pending change of throughput effective when its time has come, and splits
// partitions until they can serve it. Every request for the container calls it.
func (c *Container) settle() {
	p := c.pending.Load()
	if p == nil || c.account.now().Before(p.due) || !c.pending.CompareAndSwap(p, nil) {
		return
	}
	for p.ru > throughputPerPartition*len(c.partitions()) {
		if err := c.Split(widest(c.partitions())); err != nil {
			c.account.log.Error("cannot split a partition for more throughput", "error", err)
			break
		}
	}
	c.setThroughput(p.ru, p.autoscale)
}

// widest returns the range that was split least often.
func widest(list []*partition) string {
	return slices.MinFunc(list, func(x, y *partition) int { return len(x.parents) - len(y.parents) }).id
}
