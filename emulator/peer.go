package emulator

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/amqp"
)

// The nodes of a namespace that aren't entities.
const (
	cbsNode        = "$cbs"
	managementNode = "$management"
)

// node is the target of a link's address.
type node struct {
	path      string // as the client wrote it, without scheme and host
	special   string // cbsNode or managementNode
	entity    string // the event hub, or the path of the queue, topic or subscription
	partition string // of an event hub
}

// pathOf returns the path of an address or audience: without scheme and host, if it has
// a scheme, and without leading and trailing slashes.
func pathOf(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		_, address, _ = strings.Cut(rest, "/")
	}
	return strings.Trim(address, "/")
}

// peer is what the server's side of a connection has in common for Event Hubs and
// Service Bus: authorization, requests, and opening links.
type peer struct {
	namespace *namespace
	conn      *amqp.Conn
	auth      *authority

	mu      sync.Mutex
	cbs     map[bool]bool // open $cbs links: incoming, outgoing
	replies []*replies
	closed  [2]string // the names of the one that ended last
}

func newPeer(f *namespace, c *amqp.Conn) *peer {
	p := &peer{namespace: f, conn: c, auth: newAuthority(f.keys), cbs: make(map[bool]bool)}
	p.auth.issuer = f.issuer
	return p
}

// Authenticate implements [amqp.Peer].
func (p *peer) Authenticate(mechanism string, response []byte) error {
	if mechanism != "PLAIN" {
		return nil // the other mechanisms prove nothing: clients put a token later
	}
	if err := p.auth.plain(response); err != nil {
		return err
	}
	p.conn.Trust()
	return nil
}

// Closed implements [amqp.Peer].
func (p *peer) Closed() { p.auth.stop() }

// admitted opens a link if a token proves the right that it needs. It checks that
// first, so that a client without rights can't find out which entities exist.
func (p *peer) admitted(l *amqp.Link, n node, right Rights, open func() (func(context.Context) error, error)) (func(context.Context) error, error) {
	needed := right
	if n.special == managementNode {
		needed = Listen | Send // any right allows reading the properties
	}
	leave, ok := p.auth.admit(l, use{path: n.path, right: needed})
	if !ok {
		return nil, p.unauthorized(n.path, right)
	}
	run, err := open()
	if err != nil {
		leave()
		return nil, err
	}
	forget := p.namespace.links.add(l, n)
	return func(ctx context.Context) error {
		defer leave()
		defer forget()
		return run(ctx)
	}, nil
}

func (p *peer) unauthorized(path string, right Rights) *amqp.Error {
	return amqp.Errorf(amqp.CondUnauthorized, "Unauthorized access. '%s' claim(s) are required to perform this operation. Resource: '%s'.",
		right, strings.ToLower(p.resource(path))) // in lower case, as Azure writes it
}

// resource returns the address of an entity.
func (p *peer) resource(path string) string {
	host := p.conn.Hostname()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return fmt.Sprintf("sb://%.200s/%.300s", host, path)
}

func (p *peer) notFound(path string) *amqp.Error {
	return amqp.Errorf(amqp.CondNotFound, "The messaging entity '%s' could not be found.", p.resource(path))
}
