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
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// atLeastOnceOptions are the keys of a file whose target cannot join the
// transaction of the checkpoint.
type atLeastOnceOptions struct {
	events  int  // records a second; 0: no limit
	ru      int  // request units a second; 0: no limit
	cluster bool // the rate is for all processes together
	config  sluice.AtLeastOnceConfig
}

// atLeastOnceKeys returns the keys of such a target.
func (r *reader) atLeastOnceKeys() strictyaml.Keys {
	s := &r.atLeastOnce
	note := func(read func(strictyaml.Node)) func(strictyaml.Node) {
		return func(n strictyaml.Node) { r.outside = append(r.outside, &n); read(n) }
	}
	const minRetry, maxRetry = time.Millisecond, time.Hour
	return strictyaml.Keys{
		"rate":             note(r.readRate),
		"backlog":          note(s.readBacklog),
		"order":            note(s.readOrder),
		"checkpoint_every": note(func(n strictyaml.Node) { n.Duration(&s.config.CheckpointEvery) }),
		"retry_throttled": note(func(n strictyaml.Node) {
			r.given.throttled = &n
			n.DurationIn(&s.config.RetryAfter, minRetry, maxRetry)
		}),
	}
}

func (r *reader) readRate(n strictyaml.Node) {
	s := &r.atLeastOnce
	ok := n.Object(strictyaml.Keys{
		"events":  func(n strictyaml.Node) { n.Int(&s.events, 1, 1_000_000) },
		"ru":      func(n strictyaml.Node) { r.given.rateRU = &n; n.Int(&s.ru, 1, 10_000_000) },
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
func (r *reader) readLeases(n strictyaml.Node) {
	r.given.leases, r.places.leases = &n, n.Place()
	ok := n.Object(strictyaml.Keys{
		"sql": r.readDatabase,
		"blob": func(n strictyaml.Node) {
			r.places.database = n.Place()
			if b := readBlob(n); b != nil {
				r.storage.database = *b
			}
		},
	})
	if ok {
		n.ExactlyOne("sql (sqlite:PATH, or the URL of a database)", "blob")
	}
}

// readLeasesBeside reads where the leases of a target in a database are stored, if not there.
func (r *reader) readLeasesBeside(n strictyaml.Node) {
	r.given.leases, r.places.leases = &n, n.Place()
	n.Object(strictyaml.Keys{
		"blob": func(n strictyaml.Node) { r.storage.leases = readBlob(n) },
		"sql": func(n strictyaml.Node) {
			n.Fail("is for a target outside a database: remove it, the leases of a target in a database are there, unless leases.blob names a container")
		},
	})
	if !n.Has("blob") && !n.Has("sql") {
		n.Fail("needs blob: without it the leases are in the database of the target")
	}
}

// checkKeys checks that the keys of the file fit together.
func (r *reader) checkKeys(top strictyaml.Node, database, memory *strictyaml.Node) {
	inDatabase := !r.AtLeastOnce()
	stored := r.places.database != (strictyaml.Place{})
	if memory != nil && !goesTo[*messageTarget](r.routing.routes[0]) {
		memory.Fail("its statistics go to a hub, a queue or a topic: write target: {eventhub: {hub: …}}")
		return
	}
	switch {
	case inDatabase:
		refuse("is for a cosmos, eventhub, servicebus, kafka or http target: remove it, a target in a database has one transaction for each batch", r.outside...)
	case memory != nil:
		r.checkRollupKeys()
	case r.given.rateRU != nil && !slices.ContainsFunc(r.routing.routes, goesTo[*cosmosTarget]):
		r.given.rateRU.Fail("is for Cosmos DB only: write events")
	case r.given.throttled != nil && !slices.ContainsFunc(r.routing.routes, func(o route) bool { return !goesTo[*httpTarget](o) }):
		r.given.throttled.Fail("is for a cosmos, eventhub, servicebus or kafka target: remove it, an http target waits as Retry-After says or as long as retry.min to retry.max")
	}
	r.checkFill()
	if r.InBatches() {
		r.checkPostedBatches(r.target().(*httpTarget))
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
	if _, blobs := r.storage.database.(blobContainer); blobs || r.storage.leases != nil {
		if err := blobstore.CheckLease(r.LeaseFor()); err != nil {
			r.given.leases.Fail("%w", err)
		}
	}
}

// checkRollupKeys refuses the keys that a rollup cannot have.
func (r *reader) checkRollupKeys() {
	refuse("cannot be combined with memory, which is read again at every start: remove it", r.outside...)
	refuse("cannot be combined with memory, which has no checkpoints to publish: remove it", r.given.progressGroup, r.given.progressBlobs)
	refuse("cannot be combined with memory, which has no checkpoints: remove it", r.given.outboxDelete)
	refuse("cannot be combined with memory, which reads all events again at every start: remove it", r.given.claimCheck)
	refuse("is for stages with checkpoints: memory.keep sets how far back the hub is read", r.given.start)
	refuse("cannot be combined with memory, which has no dead letters: remove it", r.given.deadLetters)
	if r.Partitions == sluice.Balanced {
		r.given.partitions.Fail("balanced: a stage with memory must keep its partitions: write all, or a whole number")
	}
}

// refuse fails each of the keys that is given.
func refuse(why string, keys ...*strictyaml.Node) {
	for _, n := range keys {
		if n != nil {
			n.Fail("%s", why)
		}
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
	cfg := p.atLeastOnce.config
	var err error
	if cfg.Rate, err = p.atLeastOnce.rate(); err != nil {
		return nil, fmt.Errorf("rate: %w", err)
	}
	if key != nil {
		sink = sluice.Keyed(sink, key)
	}
	return sluice.AtLeastOnce(parts.store, decodedRecords(p, records), sink, &cfg), nil
}
