//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"slices"
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
	DeliverLate              // cut the client off now; the server gets it at [Proxy.Deliver]
)

// Proxy is a TCP proxy in front of a PostgreSQL server. It speaks to clients
// that use neither TLS nor encryption by GSSAPI. It is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	deciding sync.Mutex // one call of decide at a time

	mu      sync.Mutex
	decide  func(n int) Fault
	inspect func(statements []string) Fault
	links   map[*link]bool
	held    []*link // late COMMITs wait here
	commits int
	stalled chan struct{} // closed when bytes may flow; nil while they may
	closed  bool
}

// NewProxy starts a proxy in front of a server's address, host:port.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{target: target, listener: l, links: make(map[*link]bool)}
	p.work.Go(p.accept)
	return p, nil
}

// NewTestProxy is [NewProxy] for a database's URL, closed at the test's end.
// It returns the URL of the same database through the proxy.
func NewTestProxy(t testing.TB, url string) (*Proxy, string) {
	t.Helper()
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal("the database's URL cannot be parsed")
	}
	p, err := NewProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u.Host = p.Addr()
	return p, u.String()
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// OnCommit sets what happens to COMMITs: decide is called with the number of
// each, from 1, by several goroutines but never two at a time. It must not
// call the proxy. Nil, as at the start, passes all on.
func (p *Proxy) OnCommit(decide func(n int) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Intercept sets what is called before what a client has sent to be carried
// out together is passed on, with the texts of its statements; the fault that
// it returns strikes, whether there is a COMMIT or not. It comes before what
// OnCommit has set, may be called for several connections at once, and may
// block, which holds its connection up. Nil, as at the start, passes all on.
func (p *Proxy) Intercept(inspect func(statements []string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inspect = inspect
}

// Next makes the next COMMIT suffer fault, and those after it pass.
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

// Commits is how many COMMITs were seen.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Deliver hands the late COMMITs to the server, as far as their sessions are
// still there, and ends their connections after the server's answer. It
// returns how many there were. A stall does not hold it up.
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

// Stall stops all bytes in both directions, as a network that drops packets
// does; connections stay open. Resume lets them flow again.
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

// Cut ends every connection, also those of COMMITs held back.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = nil
	for l := range p.links {
		l.cut()
	}
}

// Close cuts everything and returns when nothing is left.
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
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, answered: make(chan struct{})}
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

// wait returns when bytes may flow.
func (p *Proxy) wait() {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// fault decides about statements that are to be carried out together.
func (p *Proxy) fault(statements []string) Fault {
	commit := slices.ContainsFunc(statements, commits)
	p.mu.Lock()
	if commit {
		p.commits++
	}
	n, inspect, decide := p.commits, p.inspect, p.decide
	p.mu.Unlock()
	if inspect != nil && len(statements) > 0 {
		if fault := inspect(statements); fault != None {
			return fault
		}
	}
	if !commit || decide == nil {
		return None
	}
	p.deciding.Lock()
	defer p.deciding.Unlock()
	return decide(n)
}

func (p *Proxy) hold(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, l)
}

// link is one proxied connection.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	mu       sync.Mutex
	muted    bool   // the client gets no more answers
	late     []byte // the COMMIT held back
	answered chan struct{}
	once     sync.Once
}

func (l *link) cut() {
	l.client.Close()
	l.server.Close()
}

// deliver sends the late COMMIT, waits for the answer, or for the end of the
// session, and ends the connection.
func (l *link) deliver() {
	if _, err := l.server.Write(l.late); err == nil {
		<-l.answered
	}
	l.server.Close()
}

// mute makes downstream drop what comes until the server is ready for the next
// query, and then signal.
func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

func (l *link) isMuted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.muted
}

// upstream carries the client's messages to the server.
func (l *link) upstream() {
	defer l.client.Close()
	err := l.forward()
	if !errors.Is(err, errHeld) {
		l.server.Close()
	}
}

var errHeld = errors.New("the server's connection is kept for a late COMMIT")

func (l *link) forward() error {
	r := newFrontend(l.client)
	for {
		group, statements, err := r.next()
		if err != nil {
			return err
		}
		l.proxy.wait()
		switch l.proxy.fault(statements) {
		case CutBefore:
			return nil
		case DeliverLate:
			l.late = group
			l.mute()
			l.proxy.hold(l)
			return errHeld
		case LoseReply:
			l.mute()
			if _, err := l.server.Write(group); err != nil {
				return err
			}
			<-l.answered
			return nil
		}
		if _, err := l.server.Write(group); err != nil {
			return err
		}
	}
}

// downstream carries the server's messages to the client.
func (l *link) downstream() {
	defer l.proxy.forget(l)
	defer l.once.Do(func() { close(l.answered) })
	defer l.cut()
	r := newBackend(l.server)
	for {
		message, ready, err := r.next()
		if err != nil {
			return
		}
		switch {
		case !l.isMuted():
			l.proxy.wait()
			if _, err := l.client.Write(message); err != nil {
				return
			}
		case ready:
			l.once.Do(func() { close(l.answered) })
			// The transaction is over; whoever waits ends the connection.
			io.Copy(io.Discard, l.server)
			return
		}
	}
}
