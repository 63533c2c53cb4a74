package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// atLeastOnceOptions are the keys of a file whose target cannot join the
// transaction of the checkpoint.
type atLeastOnceOptions struct {
	keysGiven []strictyaml.Node // the given keys that only such targets have
	events    int               // records a second; 0: no limit
	ru        int               // request units a second; 0: no limit
	rateRU    *strictyaml.Node  // rate.ru
	throttled *strictyaml.Node  // retry_throttled
	cluster   bool              // the rate is for all processes together
	config    sluice.AtLeastOnceConfig
}

// keys returns the keys of such a target.
func (s *atLeastOnceOptions) keys(p *Pipeline) strictyaml.Keys {
	note := func(read func(strictyaml.Node)) func(strictyaml.Node) {
		return func(n strictyaml.Node) { s.keysGiven = append(s.keysGiven, n); read(n) }
	}
	const minRetry, maxRetry = time.Millisecond, time.Hour
	return strictyaml.Keys{
		"rate":             note(s.readRate),
		"backlog":          note(s.readBacklog),
		"order":            note(s.readOrder),
		"checkpoint_every": note(func(n strictyaml.Node) { n.Duration(&s.config.CheckpointEvery) }),
		"retry_throttled": note(func(n strictyaml.Node) {
			s.throttled = &n
			n.DurationIn(&s.config.RetryAfter, minRetry, maxRetry)
		}),
	}
}

func (s *atLeastOnceOptions) readRate(n strictyaml.Node) {
	ok := n.Object(strictyaml.Keys{
		"events":  func(n strictyaml.Node) { n.Int(&s.events, 1, 1_000_000) },
		"ru":      func(n strictyaml.Node) { s.rateRU = &n; n.Int(&s.ru, 1, 10_000_000) },
		"cluster": func(n strictyaml.Node) { n.Bool(&s.cluster) },
	})
	if ok && n.ExactlyOne("events (records a second)", "ru (request units a second)") && s.cluster && s.ru > 0 {
		n.Fail("cluster is for events only: divide the ru by the number of processes")
	}
}

func (s *atLeastOnceOptions) readBacklog(n strictyaml.Node) {
	var bytes int
	n.Object(strictyaml.Keys{
		"events": func(n strictyaml.Node) { n.Int(&s.config.MaxEvents, 1, 100_000_000) },
		"bytes":  func(n strictyaml.Node) { n.Size(&bytes, 64<<30) },
		"age":    func(n strictyaml.Node) { n.Duration(&s.config.MaxAge) },
		"fatal":  func(n strictyaml.Node) { n.Bool(&s.config.AgeFatal) },
	})
	s.config.MaxBytes = int64(bytes)
}

func (s *atLeastOnceOptions) readOrder(n strictyaml.Node) {
	var word string
	if !n.OneOf(&word, "key", "partition", "none") {
		return
	}
	s.config.Order = map[string]sluice.Ordering{"key": sluice.OrderKey, "partition": sluice.OrderPartition, "none": sluice.OrderNone}[word]
}

// readLeases reads where leases, checkpoints and dead letters are stored, of a target outside a
// database.
func (p *Pipeline) readLeases(n strictyaml.Node) {
	p.keyNodes.leases = &n
	ok := n.Object(strictyaml.Keys{
		"sql": p.readDatabase,
		"blob": func(n strictyaml.Node) {
			p.places.database = n.Place()
			if b := readBlob(n); b != nil {
				p.database = *b
			}
		},
	})
	if ok {
		n.ExactlyOne("sql (sqlite:PATH, or the URL of a database)", "blob")
	}
}

// readLeasesBeside reads where the leases of a target in a database are stored, if not there.
func (p *Pipeline) readLeasesBeside(n strictyaml.Node) {
	p.keyNodes.leases = &n
	n.Object(strictyaml.Keys{
		"blob": func(n strictyaml.Node) { p.leases = readBlob(n) },
		"sql": func(n strictyaml.Node) {
			n.Fail("is for a target outside a database: remove it, the leases of a target in a database are there, unless leases.blob names a container")
		},
	})
	if !n.Has("blob") && !n.Has("sql") {
		n.Fail("needs blob: without it the leases are in the database of the target")
	}
}

// checkKeys checks that the keys of the file fit together.
func (p *Pipeline) checkKeys(top strictyaml.Node, database, memory *strictyaml.Node) {
	s := &p.atLeastOnce
	inDatabase := !p.AtLeastOnce()
	stored := p.places.database != (strictyaml.Place{})
	if p.messages == nil && memory != nil {
		memory.Fail("its statistics go to a hub, a queue or a topic: write target: {eventhub: {hub: …}}")
		return
	}
	switch {
	case inDatabase:
		for _, n := range s.keysGiven {
			n.Fail("is for a cosmos, eventhub, servicebus, kafka or http target: remove it, a target in a database has one transaction for each batch")
		}
	case memory != nil:
		p.checkRollupKeys()
	case s.rateRU != nil && !slices.ContainsFunc(p.targets(), func(t *Pipeline) bool { return t.cosmos != nil }):
		s.rateRU.Fail("is for Cosmos DB only: write events")
	case s.throttled != nil && !slices.ContainsFunc(p.targets(), func(t *Pipeline) bool { return t.http == nil }):
		s.throttled.Fail("is for a cosmos, eventhub, servicebus or kafka target: remove it, an http target waits as Retry-After says or as long as retry.min to retry.max")
	}
	if p.http != nil && !inDatabase {
		p.http.checkOrder(p)
	}
	switch {
	case inDatabase && !stored:
		top.Fail("database is missing: write sqlite:PATH, or a URL such as postgres://user:${PASSWORD}@host/database")
	case inDatabase:
	case database != nil:
		database.Fail("is for a target in a database: for this target write leases: {sql: …}, where leases, checkpoints and dead letters are stored")
	case !stored:
		top.Fail("leases are missing: write leases: {sql: sqlite:PATH}, where checkpoints and dead letters are stored too")
	}
	if _, blobs := p.database.(blobContainer); blobs || p.leases != nil {
		if err := blobstore.CheckLease(p.LeaseFor()); err != nil {
			p.keyNodes.leases.Fail("%w", err)
		}
	}
}

// checkRollupKeys refuses the keys that a rollup cannot have.
func (p *Pipeline) checkRollupKeys() {
	s := &p.atLeastOnce
	for _, n := range s.keysGiven {
		n.Fail("cannot be combined with memory, which is read again at every start: remove it")
	}
	for _, n := range []*strictyaml.Node{p.keyNodes.progressGroup, p.keyNodes.progressBlobs} {
		if n != nil {
			n.Fail("cannot be combined with memory, which has no checkpoints to publish: remove it")
		}
	}
	if n := p.keyNodes.claimCheck; n != nil {
		n.Fail("cannot be combined with memory, which reads all events again at every start: remove it")
	}
	if n := p.keyNodes.start; n != nil {
		n.Fail("is for stages with checkpoints: memory.keep sets how far back the hub is read")
	}
	if p.Partitions == sluice.Balanced {
		p.keyNodes.partitions.Fail("balanced: a stage with memory must keep its partitions: write all, or a whole number")
	}
	if n := p.keyNodes.deadLetters; n != nil {
		n.Fail("cannot be combined with memory, which has no dead letters: remove it")
	}
}

// rate returns the rate limit, nil if there is none.
func (s *atLeastOnceOptions) rate() (*sluice.Rate, error) {
	switch {
	case s.events == 0:
		return nil, nil
	case s.cluster:
		return sluice.NewClusterRate(s.events)
	}
	return sluice.NewRate(s.events)
}

// atLeastOnce returns the delivery of a pipeline into a sink, which parts closes.
func atLeastOnce[R any](p *Pipeline, parts *Parts, records func(context.Context, *sluice.Event) ([]R, error), sink driver.Sink[R], key func(R) string) (sluice.Delivery, error) {
	if parts.store == nil {
		return nil, errors.New("these stores cannot keep checkpoints for at-least-once delivery")
	}
	c := p.atLeastOnce.config
	cfg := sluice.AtLeastOnceConfig{
		Order: c.Order, CheckpointEvery: c.CheckpointEvery, MaxEvents: c.MaxEvents, MaxBytes: c.MaxBytes,
		MaxAge: c.MaxAge, AgeFatal: c.AgeFatal, RetryAfter: c.RetryAfter, OnDeadLetter: c.OnDeadLetter,
	}
	var err error
	if cfg.Rate, err = p.atLeastOnce.rate(); err != nil {
		return nil, fmt.Errorf("rate: %w", err)
	}
	if key != nil {
		sink = sluice.Keyed(sink, key)
	}
	return sluice.AtLeastOnce(parts.store, decodedRecords(p, records), sink, &cfg), nil
}
