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
	DeliverLate              // cut the client off now; the server gets it at [Proxy.Deliver], and no request to cancel it
)

// Proxy is a TCP proxy in front of a PostgreSQL server. It speaks to clients
// that use neither TLS nor encryption by GSSAPI. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	deciding sync.Mutex // one call of decide at a time

	mu      sync.Mutex
	target  string
	decide  func(n int) Fault
	inspect func(statements []string) Fault
	witness func(statements, tags []string)
	links   map[*link]bool
	held    []*link         // late COMMITs wait here
	late    map[uint32]bool // the server's processes that have got them, or will
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
	p := &Proxy{target: target, listener: l, links: make(map[*link]bool), late: make(map[uint32]bool)}
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inspect = inspect
}

// Answers sets a function that is called with each answer before the client gets it:
// with the statements that were to be executed together, and the tags, such as
// "UPDATE 1", of those that the server has executed. It may be called for several
// connections concurrently, and must not block.
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

// wait waits until the end of a stall.
func (p *Proxy) wait() {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}

// fault returns the fault of statements that are to be executed together.
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

func (p *Proxy) answered(statements, tags []string) {
	p.mu.Lock()
	witness := p.witness
	p.mu.Unlock()
	if witness != nil && len(statements) > 0 {
		witness(statements, tags)
	}
}

func (p *Proxy) hold(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, l)
	p.late[l.session] = true
}

// isLate reports whether a COMMIT to that process of the server is held back.
func (p *Proxy) isLate(session uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late[session]
}

// link is one proxied connection.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	late     []byte // the COMMIT held back
	answered chan struct{}
	once     sync.Once

	mu      sync.Mutex
	session uint32     // number of the server's process
	muted   bool       // the client gets no more answers
	waiting [][]string // statements whose answers are still to come, oldest first
}

func (l *link) cut() {
	l.client.Close()
	l.server.Close()
}

// deliver sends the late COMMIT, waits for the answer or for the end of the session,
// and closes the connection.
func (l *link) deliver() {
	if _, err := l.server.Write(l.late); err == nil {
		<-l.answered
	}
	l.server.Close()
}

// mute makes downstream drop messages until the server is ready for the next query,
// and then signal.
func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

// begins records the server process of the connection.
func (l *link) begins(session uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = session
}

// expect records that an answer to these statements will follow.
func (l *link) expect(statements []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, statements)
}

// came returns the statements whose answer has arrived.
func (l *link) came() (statements []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		statements, l.waiting = l.waiting[0], l.waiting[1:]
	}
	return statements
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
		if l.proxy.isLate(r.cancels) {
			return nil
		}
		fault := l.proxy.fault(statements)
		if r.answered {
			l.expect(statements)
		}
		switch fault {
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
	var tags []string
	for {
		message, ready, err := r.next()
		if err != nil {
			return
		}
		if pid, ok := r.session(message); ok {
			l.begins(pid)
		}
		if tag := r.tag(message); tag != "" {
			tags = append(tags, tag)
		}
		if ready {
			l.proxy.answered(l.came(), tags)
			tags = nil
		}
		switch {
		case !l.isMuted():
			l.proxy.wait()
			if _, err := l.client.Write(message); err != nil {
				return
			}
		case ready:
			l.once.Do(func() { close(l.answered) })
			// The transaction is over; the side that waits ends the connection.
			io.Copy(io.Discard, l.server)
			return
		}
	}
}
