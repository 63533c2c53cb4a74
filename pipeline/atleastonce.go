package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// atLeastOnceOptions is what a file says that writes into a store which can't join the
// checkpoint's transaction.
type atLeastOnceOptions struct {
	keysGiven []strictyaml.Node // the keys that are of use to nobody else
	leases    *strictyaml.Node  // leases
	events    int               // records a second; 0: as many as go
	ru        int               // request units a second; 0 likewise
	rateRU    *strictyaml.Node  // rate.ru
	cluster   bool              // the rate is that of all processes together
	config    sluice.AtLeastOnceConfig
}

// keys are those of a file for such a store.
func (s *atLeastOnceOptions) keys(p *Pipeline) strictyaml.Keys {
	note := func(read func(strictyaml.Node)) func(strictyaml.Node) {
		return func(n strictyaml.Node) { s.keysGiven = append(s.keysGiven, n); read(n) }
	}
	return strictyaml.Keys{
		"rate":             note(s.readRate),
		"backlog":          note(s.readBacklog),
		"order":            note(s.readOrder),
		"checkpoint_every": note(func(n strictyaml.Node) { n.Duration(&s.config.CheckpointEvery) }),
		"leases":           note(p.readLeases),
	}
}

func (s *atLeastOnceOptions) readRate(n strictyaml.Node) {
	found := 0
	ok := n.Object(strictyaml.Keys{
		"events":  func(n strictyaml.Node) { found++; n.Int(&s.events, 1, 1_000_000) },
		"ru":      func(n strictyaml.Node) { found++; s.rateRU = &n; n.Int(&s.ru, 1, 10_000_000) },
		"cluster": func(n strictyaml.Node) { n.Bool(&s.cluster) },
	})
	switch {
	case ok && found != 1:
		n.Fail("needs one of events (records a second) and ru (request units a second)")
	case ok && s.cluster && s.ru > 0:
		n.Fail("cluster goes with events only: divide the ru by the number of processes")
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

// readLeases reads where leases, checkpoints and dead letters are kept.
func (p *Pipeline) readLeases(n strictyaml.Node) {
	p.atLeastOnce.leases = &n
	found := 0
	ok := n.Object(strictyaml.Keys{
		"sql":  func(n strictyaml.Node) { found++; p.readDatabase(n) },
		"blob": func(n strictyaml.Node) { found++; p.readBlob(n) },
	})
	if ok && found != 1 {
		n.Fail("needs one of sql (write sqlite:PATH or postgres://…) and blob")
	}
}

// checkKeys sees that the keys of the file go together.
func (p *Pipeline) checkKeys(top strictyaml.Node, database, memory *strictyaml.Node) {
	s := &p.atLeastOnce
	inDatabase := p.cosmos == nil && p.messages == nil
	stored := p.places.database != (strictyaml.Place{})
	if inDatabase && memory != nil {
		memory.Fail("what it holds goes to a hub or a queue: write target: {eventhub: {hub: …}}")
		return
	}
	switch {
	case inDatabase:
		for _, n := range s.keysGiven {
			n.Fail("is for a cosmos, eventhub or servicebus target: one transaction for each batch needs none of it")
		}
	case memory != nil:
		p.checkRollupKeys()
	case p.messages != nil && s.rateRU != nil:
		s.rateRU.Fail("is what Cosmos DB charges: write events")
	}
	switch {
	case inDatabase && !stored:
		top.Fail("lacks database: write sqlite:PATH or postgres://user:${PASSWORD}@host/database")
	case inDatabase:
	case database != nil:
		database.Fail("is for a target in a database: of one outside write leases: {sql: …}, where leases, checkpoints and dead letters are kept")
	case !stored:
		top.Fail("lacks leases: write leases: {sql: sqlite:PATH}, which is where the checkpoints and dead letters are kept too")
	}
	if _, blobs := p.database.(blobContainer); blobs {
		if err := blobstore.CheckLease(p.LeaseFor()); err != nil {
			s.leases.Fail("%w", err)
		}
	}
}

// checkRollupKeys refuses what a pipeline in memory has no use for.
func (p *Pipeline) checkRollupKeys() {
	s := &p.atLeastOnce
	for _, n := range s.keysGiven {
		if s.leases == nil || n.Place() != s.leases.Place() {
			n.Fail("is for events that are done one by one: a memory is built anew at every start")
		}
	}
	if n := p.keyNodes.start; n != nil {
		n.Fail("is for stages with checkpoints: how far back a memory is read, memory.keep says")
	}
	if p.Partitions == sluice.Balanced {
		p.keyNodes.partitions.Fail("balanced: a stage in memory must keep its partitions: write all, or a whole number")
	}
	if n := p.keyNodes.letters; n != nil {
		n.Fail("is for stages with dead letters: what a memory can't take in does not count")
	}
}

// rate makes what bounds the records sent.
func (s *atLeastOnceOptions) rate() (*sluice.Rate, error) {
	switch {
	case s.events == 0:
		return nil, nil
	case s.cluster:
		return sluice.NewClusterRate(s.events)
	}
	return sluice.NewRate(s.events)
}

// atLeastOnce makes the delivery of a pipeline into a sink that parts closes.
func atLeastOnce[R any](p *Pipeline, parts *Parts, records func(context.Context, *sluice.Event) ([]R, error), sink sluice.Sink[R], key func(R) string) (sluice.Delivery, error) {
	if parts.store == nil {
		return nil, errors.New("these stores keep no checkpoints of their own")
	}
	c := p.atLeastOnce.config
	cfg := sluice.AtLeastOnceConfig{
		Key: func(record any) string { return key(record.(R)) }, Order: c.Order, CheckpointEvery: c.CheckpointEvery, MaxEvents: c.MaxEvents, MaxBytes: c.MaxBytes,
		MaxAge: c.MaxAge, AgeFatal: c.AgeFatal, RetryAfter: c.RetryAfter, OnDeadLetter: c.OnDeadLetter,
	}
	var err error
	if cfg.Rate, err = p.atLeastOnce.rate(); err != nil {
		return nil, fmt.Errorf("rate: %w", err)
	}
	return sluice.AtLeastOnce(parts.store, records, sink, &cfg), nil
}
