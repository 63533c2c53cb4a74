// Package wire runs the drivers of logs between the engine and brokers that lie: in virtual time,
// over a network in memory, with faults that a seed chooses. The brokers are models: the emulator
// of Event Hubs, and kfake for Kafka. What a link does to the bytes of an answer is in links.go.
//
// A seed chooses the faults. It does not choose the order in which goroutines run, so a second run
// of a seed may differ.
package wire

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// network connects clients and brokers of one world.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	dishonest func(conn *link) // starts what lies on a new connection; nil: all are honest
	links     map[*link]bool
}

func newNetwork() *network {
	return &network{listeners: map[string]*listener{}, links: map[*link]bool{}}
}

// address is that of a listener.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// listener accepts connections at an address.
type listener struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// ports numbers the addresses of a process. What a driver keeps of one for all its sources, such as
// the pace of requests, belongs to one bubble.
var ports atomic.Int64

// listen has the signature of [net.Listen].
func (n *network) listen(_, at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	tcp := &net.TCPAddr{IP: net.ParseIP(host), Port: int(ports.Add(1))}
	if tcp.IP == nil {
		tcp.IP = net.IPv4(127, 0, 0, 1)
	}
	if port != "0" {
		tcp.Port, err = net.LookupPort("tcp", port)
	}
	l := &listener{address: tcp, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[tcp.String()] = l
	return l, err
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *listener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return l.address }

// dial connects to a listener, through a link that lies while any does.
func (n *network) dial(ctx context.Context, at string) (net.Conn, error) {
	n.mu.Lock()
	dishonest := n.dishonest
	n.mu.Unlock()
	return n.connect(ctx, at, dishonest)
}

func (n *network) connect(ctx context.Context, at string, dishonest func(*link)) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(at), Err: net.ErrClosed}
	}
	client, server := net.Pipe()
	if dishonest != nil {
		far := server
		var near net.Conn
		near, server = net.Pipe()
		link := &link{client: far, server: near, ended: make(chan struct{})}
		n.mu.Lock()
		n.links[link] = true
		n.mu.Unlock()
		dishonest(link)
		go func() {
			link.run()
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.links, link)
		}()
	}
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	client.Close()
	server.Close()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(at), Err: net.ErrClosed}
}

// honest ends what lies: new links pass everything, those that are open are cut.
func (n *network) honest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dishonest = nil
	for l := range n.links {
		l.cut()
	}
}
