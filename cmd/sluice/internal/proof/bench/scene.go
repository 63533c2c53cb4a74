//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/pipeline"
)

// scene is a hub, a PostgreSQL, the consumer processes between them, and a feed of events.
type scene struct {
	hub       *hub
	server    *pgtest.Server
	link      *tcplink.Link // through which the consumers reach the database
	url       string        // of the database, through the link
	direct    string
	feed      *feed
	log       string // the consumers' file
	consumers []*consumer
	began     time.Time

	stopFeed func()
	fed      chan error

	mu        sync.Mutex
	committed [maxPartitions]int64
	samples   []sample
	marks     []mark
}

// sample is the state of a scene at a moment.
type sample struct {
	Seconds   float64 `json:"at_seconds"`
	Published int64   `json:"published"`
	Committed int64   `json:"committed"`
	HubBytes  int64   `json:"hub_resident_bytes"`
	// Resident is the memory of each consumer process, 0 while it does not run.
	Resident []int64 `json:"consumers_resident_bytes"`
	// P50 and P99 are the highest that a consumer has reported since the last sample, in
	// milliseconds; 0 if none has committed.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// lag is how many events are published and not committed. Both are read one after the other.
func (s *sample) lag() float64 { return max(0, float64(s.Published-s.Committed)) }

// mark is something that was done to a scene.
type mark struct {
	Seconds float64 `json:"at_seconds"`
	What    string  `json:"what"`
}

// consumer is a process, or the one that replaces it after a kill.
type consumer struct {
	scene      *scene
	partitions string
	child      *child
	reading    chan struct{} // closed when the last line was read

	mu       sync.Mutex
	p50, p99 float64 // the highest since the last sample
}

func newScene(ctx context.Context, f *feed, retained int64) (s *scene, err error) {
	s = &scene{feed: f}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.hub, err = startHubOf(ctx, hubJob{Partitions: maxPartitions, RetentionBytes: retained}); err != nil {
		return s, err
	}
	if s.server, err = pgtest.Start(&pgtest.Config{Durable: true, Settings: []string{"min_wal_size = '1GB'", "max_wal_size = '4GB'"}}); err != nil {
		return s, err
	}
	if s.direct, err = s.server.CreateDatabase(ctx, "soak"); err != nil {
		return s, err
	}
	if s.link, err = tcplink.New("127.0.0.1:0", s.server.Addr()); err != nil {
		return s, err
	}
	through, err := url.Parse(s.direct)
	if err != nil {
		return s, err
	}
	through.Host = s.link.Addr()
	s.url = through.String()
	s.log = filepath.Join(os.TempDir(), fmt.Sprintf("sluice-bench-%d.log", os.Getpid()))
	return s, s.withDatabase(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, soakTable)
		return err
	})
}

func (s *scene) withDatabase(do func(*sql.DB) error) error {
	db, err := pipeline.OpenReader(s.direct)
	if err != nil {
		return err
	}
	defer db.Close()
	return do(db)
}

// close ends all processes. Those that have ended already are no error.
func (s *scene) close() error {
	if s.stopFeed != nil {
		s.stopFeed()
		<-s.fed
	}
	for _, c := range s.consumers {
		c.kill()
	}
	if s.link != nil {
		s.link.Close()
	}
	if s.hub != nil {
		s.hub.end()
	}
	if s.log != "" {
		os.Remove(s.log)
	}
	if s.server != nil {
		return s.server.Close()
	}
	return nil
}

// publish starts the feed, and with it the scene's clock.
func (s *scene) publish(ctx context.Context) {
	s.began = time.Now()
	feeding, stop := context.WithCancel(ctx)
	s.stopFeed, s.fed = stop, make(chan error, 1)
	go func() { s.fed <- s.feed.publish(feeding, s.hub) }()
}

// endFeed stops the feed, and returns how many events of each partition are published.
func (s *scene) endFeed() ([]int64, error) {
	s.stopFeed()
	err := <-s.fed
	s.fed <- err // close waits for it too
	published := make([]int64, maxPartitions)
	for p := range published {
		published[p] = s.feed.sent[p].Load()
	}
	return published, err
}

// start adds a consumer process.
func (s *scene) start(ctx context.Context, partitions string) error {
	c := &consumer{scene: s, partitions: partitions}
	if err := c.start(ctx); err != nil {
		return err
	}
	s.consumers = append(s.consumers, c)
	return nil
}

func (c *consumer) start(ctx context.Context) error {
	s := c.scene
	child, err := spawnQuiet(ctx, soakRole, soakJob{Hub: s.hub.connection, Partitions: c.partitions, Database: s.url, Log: s.log})
	if err != nil {
		return err
	}
	c.child, c.reading = child, make(chan struct{})
	go func() {
		defer close(c.reading)
		for {
			var l soakLine
			if child.receive(&l) != nil {
				return // it has ended, or was killed within a line
			}
			c.mu.Lock()
			c.p50, c.p99 = max(c.p50, l.Published.P50), max(c.p99, l.Published.P99)
			c.mu.Unlock()
			s.progress(l.Committed)
		}
	}()
	return nil
}

// kill ends the process at once, if it runs.
func (c *consumer) kill() {
	_ = c.child.cmd.Process.Kill()
	<-c.reading
	_ = c.child.end()
}

// slowest is the highest latency since the last call.
func (c *consumer) slowest() (p50, p99 float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p50, p99 = c.p50, c.p99
	c.p50, c.p99 = 0, 0
	return p50, p99
}

// progress takes over what a process has committed. A line of a process that was paused may be old.
func (s *scene) progress(committed map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for partition, n := range committed {
		if p, err := strconv.Atoi(partition); err == nil && p < maxPartitions {
			s.committed[p] = max(s.committed[p], n)
		}
	}
}

func (s *scene) seconds() float64 { return time.Since(s.began).Seconds() }

// mark records what is done to the scene now.
func (s *scene) mark(what string) { s.marks = append(s.marks, mark{s.seconds(), what}) }

// sample measures and records the state.
func (s *scene) sample() *sample {
	now := sample{Seconds: s.seconds()}
	s.mu.Lock()
	for _, n := range s.committed {
		now.Committed += n
	}
	s.mu.Unlock()
	now.Published = s.feed.total()
	now.HubBytes = measure.ResidentOf(s.hub.cmd.Process.Pid)
	for _, c := range s.consumers {
		now.Resident = append(now.Resident, measure.ResidentOf(c.child.cmd.Process.Pid))
		p50, p99 := c.slowest()
		now.P50, now.P99 = max(now.P50, p50), max(now.P99, p99)
	}
	s.samples = append(s.samples, now)
	return &now
}

// watch samples once a second until done, at most for a time.
func (s *scene) watch(ctx context.Context, what string, most time.Duration, done func(*sample) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not within %v: %s", most, what))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.failed(); err != nil {
			return err
		}
		if done(s.sample()) {
			return nil
		}
	}
}

// failed is why a process or the feed has ended that should run.
func (s *scene) failed() error {
	select {
	case err := <-s.fed:
		s.fed <- err
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	default:
	}
	for i, c := range s.consumers {
		select {
		case <-c.reading:
			return fmt.Errorf("consumer %d has ended: %w: %s", i, c.child.end(), c.child.errors)
		default:
		}
	}
	return nil
}

// drain ends the feed, waits until everything is committed, and counts.
func (s *scene) drain(ctx context.Context, most time.Duration) (*tally, error) {
	published, err := s.endFeed()
	if err != nil {
		return nil, err
	}
	if err := s.watch(ctx, "all events are committed", most, func(now *sample) bool { return now.lag() == 0 }); err != nil {
		return nil, err
	}
	var t *tally
	err = s.withDatabase(func(db *sql.DB) (err error) {
		t, err = count(ctx, db, published)
		return err
	})
	return t, err
}
