//go:build linux

package attack

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/netns"
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// trap calls strike when a statement of its moment passes the proxy, and holds the
// statement back until release is closed.
type trap struct {
	moment  moment
	strike  func()
	hit     chan struct{}
	release chan struct{}
}

// route is the connection of a process to the log, to the database and to the receiver.
type route struct {
	program     string
	log         []*tcplink.Link // to each of its servers
	sql         *tcplink.Link
	target      *tcplink.Link      // to the receiver; nil without one
	deliverLate func()             // delivers the COMMIT, or the request, that is held back
	commits     *commitproxy.Proxy // between sql and the database; nil where no fault strikes statements
}

func (w *route) close() {
	if w == nil {
		return
	}
	for _, l := range w.log {
		l.Close()
	}
	for _, l := range w.stores() {
		l.Close()
	}
	if w.commits != nil {
		w.commits.Close()
	}
}

// stores are the links to where a step is stored.
func (w *route) stores() (list []*tcplink.Link) {
	for _, l := range []*tcplink.Link{w.sql, w.target} {
		if l != nil {
			list = append(list, l)
		}
	}
	return list
}

// consumer is a `sluice run` that is started again whenever it ends.
type consumer struct {
	service
	*route
	name   string
	engine *Engine
	netns  *netns.Namespace // nil if it runs in the host's network

	mu     sync.Mutex
	trap   *trap
	armed  Fault // for the next COMMIT
	late   bool  // a COMMIT is held back
	struck func(Fault)
	last   time.Time // when a step of the current process came to its COMMIT
	fenced int       // steps that the fence has refused
	seen   [commits + 1]bool
}

// commitFaults maps faults to those of the proxy.
var commitFaults = map[Fault]commitproxy.Fault{CutBefore: commitproxy.CutBefore, LoseReply: commitproxy.LoseReply, DeliverLate: commitproxy.DeliverLate}

// connection returns a function that is called with all statements that the consumer sends on a new
// connection.
func (c *consumer) connection() func(statements []string) commitproxy.Fault {
	momentOf := c.engine.moments()
	return func(statements []string) commitproxy.Fault { return c.intercept(momentOf(statements)) }
}

// intercept is called when the consumer's connections send a statement.
func (c *consumer) intercept(at moment) commitproxy.Fault {
	if at == never {
		return commitproxy.None
	}
	c.mu.Lock()
	c.seen[at] = true
	var sprung *trap
	if c.trap != nil && c.trap.moment == at {
		sprung, c.trap = c.trap, nil
	}
	var fault Fault
	if at == commits {
		c.last = time.Now()
		if sprung == nil {
			fault, c.armed = c.armed, ""
			c.late = c.late || fault == DeliverLate
		}
	}
	c.mu.Unlock()
	if sprung != nil {
		sprung.strike()
		close(sprung.hit)
		<-sprung.release
	}
	if fault != "" {
		c.struck(fault)
	}
	return commitFaults[fault] // None for none
}

// answered is called with the results of the consumer's statements.
func (c *consumer) answered(statements, tags []string) {
	if c.engine.refused(statements, tags) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fenced++
	}
}

// refusals is the number of its steps that the fence has refused.
func (c *consumer) refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fenced
}

// setTrap sets a trap.
func (c *consumer) setTrap(at moment, strike func()) *trap {
	t := &trap{moment: at, strike: strike, hit: make(chan struct{}), release: make(chan struct{})}
	c.mu.Lock()
	c.trap = t
	c.mu.Unlock()
	return t
}

// awaitTrap waits until the trap is hit, and removes it if it is not in time.
func (c *consumer) awaitTrap(ctx context.Context, t *trap, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-t.hit:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.trap == t {
		c.trap = nil
		c.mu.Unlock()
		return false
	}
	c.mu.Unlock()
	<-t.hit // it is hit at this moment
	return true
}

// arm sets the fault of the next COMMIT, unless one is set already.
func (c *consumer) arm(f Fault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed != "" || c.late {
		return false
	}
	c.armed = f
	return true
}

// deliver delivers the COMMIT that is held back.
func (c *consumer) deliver() {
	c.deliverLate()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = false
}

// disarm removes the fault of the next COMMIT, and returns it.
func (c *consumer) disarm() Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.armed
	c.armed = ""
	return f
}

// disarmed reports whether no fault is set for the next COMMIT.
func (c *consumer) disarmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed == ""
}

// working reports whether the consumer has sent a COMMIT in the last second.
func (c *consumer) working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last) < time.Second
}

// begin starts a process of the consumer, with its own history file.
func (w *world) begin(c *consumer, life int) (*process, error) {
	c.mu.Lock()
	c.last = time.Time{}
	c.mu.Unlock()
	name := c.process(life)
	args := []string{w.Binary, "run", w.pipeline(), "--history", historyOf(w.Dir, name)}
	if c.name == "a" {
		args = append(args, "--log-level", "debug") // for the search for secrets
	}
	if c.netns != nil {
		args = c.netns.Inside(args...)
	}
	return launch(w.Dir, name, w.env(c.route), args...)
}

// process is the name of a consumer's process.
func (c *consumer) process(life int) string { return fmt.Sprintf("consumer-%s-%04d", c.name, life) }

func historyOf(dir, name string) string { return filepath.Join(dir, name+".history") }
