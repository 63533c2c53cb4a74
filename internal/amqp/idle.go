package amqp

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// A server may detach idle links and close connections without links, as Azure does. A link
// for sending is idle while no message arrives; one for receiving, while it has no credit
// (azure-event-hubs-java#294): a client that waits for messages is not idle. Links to nodes of
// the protocol itself, such as $cbs, are never idle.

// watchesIdle reports whether links or connections can be idle.
func (cfg *Config) watchesIdle() bool { return cfg.IdleLink > 0 || cfg.IdleConnection > 0 }

// watchIdle looks for idle links, and for the connection having none, until it ends.
func (c *Conn) watchIdle() {
	look := time.Minute
	if d := c.cfg.IdleLink; d > 0 {
		look = min(look, d/4)
	}
	if d := c.cfg.IdleConnection; d > 0 {
		look = min(look, d/20)
	}
	tick := time.NewTicker(max(look, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.endIdle(now)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Conn) endIdle(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := c.allowedWithoutLinks(); limit > 0 && c.linkCount == 0 && now.Sub(c.linkless) >= limit {
		c.failLocally(Errorf(CondConnectionForced, "The connection was inactive for more than the allowed %d milliseconds and is closed by container 'LinkTracker'.",
			limit.Milliseconds()))
		return
	}
	if c.cfg.IdleLink <= 0 {
		return
	}
	for _, s := range c.sessions {
		for _, l := range s.links {
			l.detachIfIdle(now)
		}
	}
}

// allowedWithoutLinks is how long the connection may have no links: a fifth of the time until it
// has its first. On Azure that is 1 minute and 5 minutes.
func (c *Conn) allowedWithoutLinks() time.Duration {
	if !c.hadLink {
		return c.cfg.IdleConnection / 5
	}
	return c.cfg.IdleConnection
}

// detachIfIdle detaches an idle link. c.mu is held.
func (l *Link) detachIfIdle(now time.Time) {
	if !l.attached || l.detachErr != nil || l.detachReceived { // c.mu guards the address of attached links only
		return
	}
	if base := path.Base(l.address); base[0] == '$' && !strings.EqualFold(base, "$DeadLetterQueue") {
		return
	}
	what := "Publisher"
	if l.outgoing != nil {
		if what = "Consumer"; l.outgoing.credit > 0 {
			l.used = now
		}
	}
	idle := l.c.cfg.IdleLink
	if now.Sub(l.used) < idle {
		return
	}
	l.detachErr = Errorf(CondDetachForced, "The link '%.100s' is force detached. Code: ServerError. Details: %s%s.IdleTimerExpired: Idle timeout: %s.",
		l.name, l.c.cfg.IdleOrigin, what, clockText(idle))
	l.cancel()
	l.pushDetach()
}

// clockText writes a duration as Azure does: 00:30:00.
func clockText(d time.Duration) string {
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	if part := d % time.Second; part > 0 {
		text += fmt.Sprintf(".%07d", part/100)
	}
	return text
}
