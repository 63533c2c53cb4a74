package group

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// standby is what a consumer has said about partitions that it wants and does not get. Only the
// goroutine that acquires partitions uses it.
type standby struct {
	few    int           // partitions of the topic when it was said that more are wanted
	waits  bool          // partitions of a replay have other owners
	began  time.Duration // by Clock.Elapsed, if waits
	waited bool          // which was said
}

// WaitingError says that a consumer does without partitions that it wants.
type WaitingError struct{ text string }

func (e *WaitingError) Error() string { return e.text }

// reportFew says once that the topic has fewer partitions than the consumer wants.
func (c *Member) reportFew(topic driver.Topic) {
	n := len(topic.Partitions)
	if c.cfg.Partitions <= n || c.standby.few == n {
		return
	}
	c.standby.few = n
	c.observe(driver.Observation{Kind: driver.KindFailed, Err: &WaitingError{fmt.Sprintf("%d partitions are configured, and topic %s has %d: state at most %[3]d, or all", c.cfg.Partitions, topic.Topic, n)}})
}

// reportWaiting says once that partitions of a replay have had other owners for longer than a
// lease: without a word a second replica would stay without their events for ever. wanted are the
// partitions that the consumer lacks.
func (c *Member) reportWaiting(topic driver.Topic, wanted []string, listed []driver.LeaseInfo) {
	if c.delivery.Store() != nil {
		return
	}
	s, now, taken := &c.standby, c.cfg.Clock.Elapsed(), 0
	var owners []string
	for i := range listed {
		if l := &listed[i]; l.Live() && l.Owner != c.cfg.Owner && slices.Contains(wanted, l.Partition) {
			taken++
			owners = append(owners, l.Owner)
		}
	}
	switch {
	case taken == 0:
		s.waits, s.waited = false, false
	case !s.waits:
		s.waits, s.began = true, now
	case !s.waited && now-s.began > c.cfg.LeaseFor:
		s.waited = true
		slices.Sort(owners)
		c.observe(driver.Observation{Kind: driver.KindFailed, Err: &WaitingError{fmt.Sprintf("replay: %d of %d partitions are owned by other processes (%s), and this one waits for them: if each replica needs all events, run each without a lease store, or give each a consumer group of its own",
			taken, len(topic.Partitions), strings.Join(slices.Compact(owners), ", "))}})
	}
}
