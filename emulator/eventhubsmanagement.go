package emulator

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// Entity types of a READ request.
const (
	typeHub       = "com.microsoft:eventhub"
	typePartition = "com.microsoft:partition"
)

// manage handles a request to $management: READ of a hub or a partition. The hub's name
// is in the request, or in the address of the link.
func (c *hubPeer) manage(ctx context.Context, l *amqp.Link, n node, req *amqp.Message) (reply, error) {
	name := req.Properties.String("name")
	if name == "" {
		name = n.entity
	}
	if !c.mayManage(name, req) { // before the faults: a client without rights does not use them up
		return reply{
			status: http.StatusUnauthorized, description: fmt.Sprintf("Unauthorized access to '%.200s': put a token for it to $cbs first.", name),
			condition: amqp.CondUnauthorized,
		}, nil
	}
	switch kind, err := c.inject(ctx, l, OnManage, name, ""); {
	case kind == FaultServerBusy && err == errServerBusy:
		return busyReply(), nil
	case err != nil:
		return reply{}, err
	}
	switch {
	case !c.azure.calls.allow(time.Now()):
		return busyReply(), nil
	case req.Properties.String("operation") != "READ":
		return badRequest("$management supports the operation READ only."), nil
	}
	h, ok := c.broker.Hub(name)
	if !ok {
		return notFound(c.notFound(name).Description), nil
	}
	switch kind := req.Properties.String("type"); kind {
	case typeHub:
		return c.azure.readHub(h), nil
	case typePartition:
		r, err := c.azure.readPartition(h, req.Properties.String("partition"))
		return r, c.explain(hubNode{node: n}, err)
	default:
		return badRequest(fmt.Sprintf("$management can't READ the type '%.100s'.", kind)), nil
	}
}

// managementCredit is how many requests may be on their way to $management on one link.
const managementCredit = 100

// mayManage reports whether the client may read the properties of a hub: by a token that it put to
// $cbs, or by one in the request, as Azure's Java library sends it.
func (c *hubPeer) mayManage(hub string, req *amqp.Message) bool {
	if c.auth.allowHub(hub) {
		return true
	}
	token := req.Properties.String("security_token")
	if token == "" || !c.auth.proves(token, hub) {
		return false
	}
	c.conn.Trust()
	return true
}

func badRequest(description string) reply {
	return reply{status: http.StatusBadRequest, description: description, condition: amqp.CondArgument}
}

func notFound(description string) reply {
	return reply{status: http.StatusNotFound, description: description, condition: amqp.CondNotFound}
}

func (a *hubsAsAzure) readHub(h *eventhubs.Hub) reply {
	regions := int32(1)
	if a.geo != nil {
		regions = 2
	}
	ids := h.PartitionIDs()
	return reply{status: http.StatusOK, description: "OK", value: amqp.Map{
		{Key: "name", Value: h.Name()},
		{Key: "type", Value: typeHub},
		{Key: "created_at", Value: h.Created()},
		{Key: "partition_count", Value: int32(len(ids))},
		{Key: "partition_ids", Value: ids},
		{Key: "georeplication_factor", Value: regions},
	}}
}

// readPartition returns the runtime information of a partition.
func (a *hubsAsAzure) readPartition(h *eventhubs.Hub, id string) (reply, error) {
	p, ok := h.Partition(id)
	if !ok {
		return notFound(fmt.Sprintf("The messaging entity '%s~%.100s' could not be found: the partitions are 0 to %d.", h.Name(), id, len(h.PartitionIDs())-1)), nil
	}
	info, err := a.runtimeInfo(p, time.Now())
	if err != nil {
		return reply{}, err
	}
	if a.geo != nil {
		info.LastOffset = a.geo.lastOffset(p, info)
	}
	return reply{status: http.StatusOK, description: "OK", value: amqp.Map{
		{Key: "name", Value: h.Name()},
		{Key: "type", Value: typePartition},
		{Key: "partition", Value: id},
		{Key: "begin_sequence_number", Value: info.First},
		{Key: "last_enqueued_sequence_number", Value: info.Last},
		{Key: "last_enqueued_offset", Value: info.LastOffset},
		{Key: "last_enqueued_time_utc", Value: info.LastEnqueued},
		{Key: "is_partition_empty", Value: info.Empty},
	}}, nil
}
