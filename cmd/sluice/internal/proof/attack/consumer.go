//go:build linux

package attack

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/proof/pgtest"
)

// moment is a point of a step's way to PostgreSQL.
type moment int

const (
	never   moment = iota
	begins         // the transaction that moves the checkpoint is asked for
	writes         // the batch's COPY
	commits        // the COMMIT behind it
)

// momentOf recognises the moments by pgstore's statements. If those change,
// nothing is recognised, no such fault strikes, and the attack fails.
func momentOf(statements []string) moment {
	last := statements[len(statements)-1]
	for _, s := range statements {
		switch {
		case strings.Contains(s, "UPDATE") && strings.Contains(s, "sluice_checkpoints") && strings.Contains(s, "RETURNING pg_current_xact_id()"):
			return begins
		case strings.HasPrefix(strings.ToLower(s), "copy "):
			return writes
		case strings.Contains(s, "pg_current_xact_id()::text = $1") && last == "COMMIT":
			return commits
		}
	}
	return never
}

// trap strikes when a statement of its moment goes by, and holds that up until
// it is released.
type trap struct {
	at      moment
	strike  func()
	hit     chan struct{}
	release chan struct{}
}

// route is how a process reaches the hub and PostgreSQL.
type route struct {
	hub, sql *Link
	commits  *pgtest.Proxy // behind sql; nil where nothing is done to statements
}

func (w *route) close() {
	if w == nil {
		return
	}
	if w.hub != nil {
		w.hub.Close()
	}
	if w.sql != nil {
		w.sql.Close()
	}
	if w.commits != nil {
		w.commits.Close()
	}
}

// consumer is one `sluice run`, kept alive.
type consumer struct {
	service
	*route
	name  string
	netns *netns // nil if it lives in the host's network

	mu     sync.Mutex
	trap   *trap
	armed  Fault // for the next COMMIT
	late   bool  // a COMMIT is held back
	struck func(Fault)
	last   time.Time // that a step of this life came to its COMMIT
	fenced int       // steps that PostgreSQL has refused: they changed no checkpoint
}

// commitFaults are what pgtest's proxy does for a fault.
var commitFaults = map[Fault]pgtest.Fault{CutBefore: pgtest.CutBefore, LoseReply: pgtest.LoseReply, DeliverLate: pgtest.DeliverLate}

// intercept sees every statement that the consumer sends.
func (c *consumer) intercept(statements []string) pgtest.Fault {
	at := momentOf(statements)
	if at == never {
		return pgtest.None
	}
	c.mu.Lock()
	var sprung *trap
	if c.trap != nil && c.trap.at == at {
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

// answered sees what comes of the consumer's statements.
func (c *consumer) answered(statements, tags []string) {
	if momentOf(statements) == begins && slices.Contains(tags, "UPDATE 0") {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fenced++
	}
}

// refusals is how many of its steps PostgreSQL has refused.
func (c *consumer) refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fenced
}

// setTrap sets a trap.
func (c *consumer) setTrap(at moment, strike func()) *trap {
	t := &trap{at: at, strike: strike, hit: make(chan struct{}), release: make(chan struct{})}
	c.mu.Lock()
	c.trap = t
	c.mu.Unlock()
	return t
}

// awaitTrap waits until the trap is sprung, or takes it away.
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
	<-t.hit // it goes off just now
	return true
}

// arm makes the next COMMIT suffer a fault, unless one is waiting already.
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
	c.commits.Deliver()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = false
}

// disarm returns the fault that waits for a COMMIT, which will suffer none.
func (c *consumer) disarm() Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.armed
	c.armed = ""
	return f
}

// disarmed tells whether no fault waits for a COMMIT.
func (c *consumer) disarmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed == ""
}

// working tells whether it has come to a COMMIT just now.
func (c *consumer) working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last) < time.Second
}

// begin starts a life, with a history of its own.
func (w *world) begin(c *consumer, life int) (*process, error) {
	c.mu.Lock()
	c.last = time.Time{}
	c.mu.Unlock()
	name := fmt.Sprintf("consumer-%s-%04d", c.name, life)
	args := []string{w.Binary, "run", w.pipeline(), "--history", historyOf(w.Dir, name)}
	if c.name == "a" {
		args = append(args, "--log-level", "debug") // for the search for secrets
	}
	if c.netns != nil {
		args = c.netns.inside(args...)
	}
	return launch(w.Dir, name, w.env(c.route), args...)
}

func historyOf(dir, name string) string { return filepath.Join(dir, name+".history") }
