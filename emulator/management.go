package emulator

import (
	"fmt"
	"net/http"

	"github.com/sluice-go/sluice/internal/amqp"
)

// Entity types of a READ request.
const (
	typeHub       = "com.microsoft:eventhub"
	typePartition = "com.microsoft:partition"
)

// manage handles a request to $management: READ of a hub or a partition. The hub's name comes with the request; the address of the link may
// name it too, but needn't.
func (c *client) manage(n node, req *amqp.Message) reply {
	name := req.Properties.String("name")
	if name == "" {
		name = n.hub
	}
	switch {
	case req.Properties.String("operation") != "READ":
		return reply{status: http.StatusBadRequest, description: "$management knows the operation READ only."}
	case !c.auth.allowHub(name):
		return reply{status: http.StatusUnauthorized, description: fmt.Sprintf("Unauthorized access to '%.200s': put a token for it first.", name)}
	}
	h, ok := c.srv.broker.Hub(name)
	if !ok {
		return reply{status: http.StatusNotFound, description: c.noSuch(name).Description}
	}
	switch kind := req.Properties.String("type"); kind {
	case typeHub:
		ids := h.PartitionIDs()
		return reply{status: http.StatusOK, description: "OK", value: amqp.Map{
			{Key: "name", Value: h.Name()},
			{Key: "type", Value: kind},
			{Key: "created_at", Value: h.Created()},
			{Key: "partition_count", Value: int32(len(ids))},
			{Key: "partition_ids", Value: ids},
			{Key: "georeplication_factor", Value: int32(1)},
		}}
	case typePartition:
		id := req.Properties.String("partition")
		p, ok := h.Partition(id)
		if !ok {
			return reply{status: http.StatusNotFound, description: fmt.Sprintf("The messaging entity '%s~%.100s' could not be found: the partitions "+
				"are 0 to %d.", h.Name(), id, len(h.PartitionIDs())-1)}
		}
		info := p.Info()
		return reply{status: http.StatusOK, description: "OK", value: amqp.Map{
			{Key: "name", Value: h.Name()},
			{Key: "type", Value: kind},
			{Key: "partition", Value: id},
			{Key: "begin_sequence_number", Value: info.First},
			{Key: "last_enqueued_sequence_number", Value: info.Last},
			{Key: "last_enqueued_offset", Value: info.LastOffset},
			{Key: "last_enqueued_time_utc", Value: info.LastEnqueued},
			{Key: "is_partition_empty", Value: info.Empty},
		}}
	default:
		return reply{status: http.StatusBadRequest, description: fmt.Sprintf("$management can't READ the type '%.100s'.", kind)}
	}
}
