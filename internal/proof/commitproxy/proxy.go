// Package commitproxy is a proxy between a database's client and its server. It recognises COMMIT
// on the wire, and can drop it, drop its answer, or deliver it late.
//
// A [Wire] reads the protocol. Packages pgtest, mariadbtest and sqlservertest have those of
// PostgreSQL, MySQL and SQL Server, and make the proxies.
package commitproxy

import (
	"fmt"
	"net"
	neturl "net/url"
	"sync"
	"testing"
)

// Fault is what a [Proxy] does to a COMMIT.
type Fault int

// The faults.
const (
	None        Fault = iota // pass it on
	CutBefore                // cut the connection; the server never sees it
	LoseReply                // let the server carry it out, then cut the connection without its answer
	DeliverLate              // cut the client off now; the server gets it at [Proxy.Deliver], and no request to cancel it
)

// Proxy is a TCP proxy in front of a database server. It speaks to clients that
// use no encryption. It is safe for concurrent use.
type Proxy struct {
	wire     func() Wire
	listener net.Listener
	work     sync.WaitGroup

	deciding sync.Mutex // one call of decide at a time

	mu        sync.Mutex
	target    string
	decide    func(n int) Fault
	inspect   func() func(statements []string) Fault // called for each connection
	witness   func(statements, tags []string)
	links     map[*link]bool
	held      []*link         // late COMMITs wait here
	protected map[uint64]bool // the server's sessions whose statements are not cancelled
	commits   int
	stalled   chan struct{} // closed when bytes may flow; nil while they may
	closed    bool
}

// New starts a proxy in front of a server's address, host:port. wire is called for each connection.
func New(target string, wire func() Wire) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{wire: wire, target: target, listener: l, links: make(map[*link]bool), protected: make(map[uint64]bool)}
	p.work.Go(p.accept)
	return p, nil
}

// NewTest is [New] for a database's URL, closed at the test's end. It returns the
// URL of the same database through the proxy.
func NewTest(t testing.TB, url string, wire func() Wire) (*Proxy, string) {
	t.Helper()
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal("the database's URL cannot be parsed")
	}
	p, err := New(u.Host, wire)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Addr()
	return p, u.String()
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Retarget makes new connections go to another server, as when a name or an address moves in a
// failover. Those that exist stay.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// OnCommit sets the faults of COMMITs: decide is called with the number of each,
// from 1, by several goroutines but never concurrently. It must not call the proxy.
// Nil, the default, passes all on.
func (p *Proxy) OnCommit(decide func(n int) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Intercept sets a function that is called before the proxy passes on a group of
// statements that a client has sent to be executed together. The fault that it
// returns strikes, with or without a COMMIT, and takes precedence over OnCommit. The
// function may be called for several connections concurrently, and may block, which
// holds back its connection only. Nil, the default, passes all on.
func (p *Proxy) Intercept(inspect func(statements []string) Fault) {
	if inspect == nil {
		p.InterceptEach(nil)
		return
	}
	p.InterceptEach(func() func([]string) Fault { return inspect })
}

// InterceptEach is [Proxy.Intercept] with a function for each connection: it gets the
// statements of one connection only, in their order. inspector makes it, when the
// connection sends its first statement, and must not block.
func (p *Proxy) InterceptEach(inspector func() func(statements []string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inspect = inspector
	for l := range p.links {
		l.inspect = nil
	}
}

// Answers sets a function that is called with each answer before the client gets it: with the
// statements that were to be executed together, and the tags, such as "UPDATE 1", of those that the
// server has executed, as its Wire makes them. It may be called for several connections
// concurrently, and must not block.
func (p *Proxy) Answers(witness func(statements, tags []string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.witness = witness
}

// Next sets the fault of the next COMMIT. Those after it pass.
func (p *Proxy) Next(fault Fault) {
	done := false
	p.OnCommit(func(int) Fault {
		if done {
			return None
		}
		done = true
		return fault
	})
}

// Commits returns the number of COMMITs so far.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Deliver sends the late COMMITs to the server, if their sessions still exist, and
// closes their connections after the server's answer. It returns how many there
// were. It ignores a stall.
func (p *Proxy) Deliver() int {
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	for _, l := range held {
		l.deliver()
	}
	return len(held)
}

// Stall stops all bytes in both directions, as a network that drops packets does;
// connections stay open. Resume ends it.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil && !p.closed {
		p.stalled = make(chan struct{})
	}
}

// Resume ends a stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Cut closes every connection, also those of COMMITs that are held back.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = nil
	for l := range p.links {
		l.cut()
	}
}

// Close closes everything, and returns when all connections have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Resume()
	p.listener.Close()
	p.Cut()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{proxy: p, wire: p.wire(), client: client, server: server, answered: make(chan struct{})}
		p.mu.Lock()
		if p.closed {
			l.cut()
		} else {
			p.links[l] = true
		}
		p.mu.Unlock()
		p.work.Go(l.upstream)
		p.work.Go(l.downstream)
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// wait waits until the end of a stall.
func (p *Proxy) wait() {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// fault returns the fault of a connection's statements that are to be executed together.
func (p *Proxy) fault(l *link, r Request) Fault {
	p.mu.Lock()
	if r.Commit {
		p.commits++
	}
	if l.inspect == nil && p.inspect != nil {
		l.inspect = p.inspect()
	}
	n, inspect, decide := p.commits, l.inspect, p.decide
	p.mu.Unlock()
	if inspect != nil && len(r.Statements) > 0 {
		if fault := inspect(r.Statements); fault != None {
			p.protect(l, fault)
			return fault
		}
	}
	if !r.Commit || decide == nil {
		return None
	}
	p.deciding.Lock()
	defer p.deciding.Unlock()
	fault := decide(n)
	p.protect(l, fault)
	return fault
}

// protect has requests to cancel a session's statements get lost, if the server must carry them out.
func (p *Proxy) protect(l *link, fault Fault) {
	if fault != DeliverLate && fault != LoseReply {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.protected[l.session] = true
}

// isProtected reports whether the server must carry out the COMMIT of a session: now, or when it is
// delivered. It waits for the decision on one that is on its way.
func (p *Proxy) isProtected(session uint64) bool {
	p.deciding.Lock()
	defer p.deciding.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.protected[session]
}

func (p *Proxy) answered(statements, tags []string) {
	p.mu.Lock()
	witness := p.witness
	p.mu.Unlock()
	if witness != nil && len(statements) > 0 {
		witness(statements, tags)
	}
}

func (p *Proxy) hold(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, l)
}
