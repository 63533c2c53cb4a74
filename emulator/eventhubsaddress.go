package emulator

import (
	"strings"

	"github.com/sluice-go/sluice/internal/amqp"
)

// hubNode is the target of a link's address in an Event Hubs namespace.
type hubNode struct {
	node
	group string // the consumer group to receive as
}

// parseAddress parses the address of a link:
//
//	$cbs
//	$management, HUB/$management
//	HUB, HUB/Partitions/ID                          to send to
//	HUB/ConsumerGroups/GROUP/Partitions/ID          to receive from
//
// Some clients put scheme and host before it.
func parseAddress(address string) (n hubNode, err error) {
	n.path = pathOf(address)
	part := strings.Split(n.path, "/")
	is := func(i int, name string) bool { return strings.EqualFold(part[i], name) }
	switch {
	case len(part) == 1 && (is(0, cbsNode) || is(0, managementNode)):
		n.special = strings.ToLower(part[0])
	case len(part) == 2 && is(1, managementNode):
		n.special, n.entity = managementNode, part[0]
	case len(part) == 1 && part[0] != "":
		n.entity = part[0]
	case len(part) == 3 && is(1, "Partitions"):
		n.entity, n.partition = part[0], part[2]
	case len(part) == 5 && is(1, "ConsumerGroups") && is(3, "Partitions"):
		n.entity, n.group, n.partition = part[0], part[2], part[4]
	case len(part) >= 2 && is(1, "Publishers"):
		return n, amqp.Errorf(amqp.CondNotImplemented, "'%.300s': sending as a publisher isn't supported: send to the event hub itself", n.path)
	default:
		return n, amqp.Errorf(amqp.CondNotFound, "The messaging entity '%.300s' could not be found.", n.path)
	}
	return n, nil
}
