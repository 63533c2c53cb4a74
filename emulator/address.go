package emulator

import (
	"strings"

	"github.com/sluice-go/sluice/internal/amqp"
)

// The nodes of a namespace that aren't entities.
const (
	cbsNode        = "$cbs"
	managementNode = "$management"
)

// node is what a link's address stands for.
type node struct {
	path      string // as the client wrote it, without scheme and host
	special   string // cbsNode or managementNode
	hub       string
	group     string
	partition string
}

// parseAddress takes apart the address of a link's node:
//
//	$cbs
//	$management, HUB/$management
//	HUB, HUB/Partitions/ID                          to send to
//	HUB/ConsumerGroups/GROUP/Partitions/ID          to receive from
//
// Some clients prefix the whole with scheme and host.
func parseAddress(address string) (node, error) {
	n := node{path: pathOf(address)}
	part := strings.Split(n.path, "/")
	is := func(i int, name string) bool { return strings.EqualFold(part[i], name) }
	switch {
	case len(part) == 1 && (is(0, cbsNode) || is(0, managementNode)):
		n.special = strings.ToLower(part[0])
	case len(part) == 2 && is(1, managementNode):
		n.special, n.hub = managementNode, part[0]
	case len(part) == 1 && part[0] != "":
		n.hub = part[0]
	case len(part) == 3 && is(1, "Partitions"):
		n.hub, n.partition = part[0], part[2]
	case len(part) == 5 && is(1, "ConsumerGroups") && is(3, "Partitions"):
		n.hub, n.group, n.partition = part[0], part[2], part[4]
	case len(part) >= 2 && is(1, "Publishers"):
		return n, amqp.Errorf(amqp.CondNotImplemented, "'%.300s': sending as a publisher isn't supported here: send to the event hub itself", n.path)
	default:
		return n, amqp.Errorf(amqp.CondNotFound, "The messaging entity '%.300s' could not be found.", n.path)
	}
	return n, nil
}

// pathOf is the path of an address or audience: without scheme and host, if there is a scheme, and without slashes around it.
func pathOf(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		_, address, _ = strings.Cut(rest, "/")
	}
	return strings.Trim(address, "/")
}
