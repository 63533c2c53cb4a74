package cosmosdb

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

type autoscale struct {
	Max int `json:"maxThroughput"`
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
	if c.throughput == 0 {
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

// oneOffer reads or replaces a container's throughput. A change is effective at once;
// on Azure it may take a while.
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
		if err := owner.SetThroughput(ru); err != nil {
			return badRequest(userMessage(err))
		}
	default:
		return c.unsupported()
	}
	c.w.Header()["x-ms-offer-replace-pending"] = []string{"false"}
	c.w.Header()["x-ms-cosmos-min-throughput"] = []string{strconv.Itoa(minThroughput)}
	body := owner.offer()
	return c.answerResource(http.StatusOK, body.Etag, body)
}
