package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/limiter"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// routingTable is the container as it was last read: how keys are hashed, and the
// queue of each range of hashes.
type routingTable struct {
	rid    string // the container's internal id, which changes if it is recreated
	paths  []string
	unique []string // the paths of each unique key
	hash   partitionkey.Definition
	ranges []partitionkey.Range
	queues []*queue
}

// find returns the queue for a record. It is an error of the record if there is none.
func (t *routingTable) find(r *record) (*queue, error) {
	if r.keys != len(t.paths) {
		return nil, fmt.Errorf("the partition key has %d values, and the container's is %s", r.keys, strings.Join(t.paths, ", "))
	}
	var space [256]byte
	i := partitionkey.Find(t.ranges, string(t.hash.AppendHash(space[:0], r.values()...)))
	if i < 0 {
		return nil, errors.New("the partition key is in no range of the container")
	}
	return t.queues[i], nil
}

// route queues a record for its physical partition.
func (s *Sink) route(r *record) {
	t := s.routes.Load()
	if t == nil {
		s.awaitRoutes([]*record{r}, nil, nil)
		return
	}
	q, err := t.find(r)
	if err != nil {
		s.finish(r, s.reject(r, err))
		return
	}
	if !q.push(r) {
		s.awaitRoutes([]*record{r}, q, nil)
	}
}

// awaitRoutes keeps records until the container has been read again. That is needed
// if it was never read, or if a queue refused the records, because its range was
// split or moved, or the container was recreated. A record that then belongs to
// another queue goes there: it was never tried. One that still belongs to the same
// queue is completed with the refusal why.
func (s *Sink) awaitRoutes(batch []*record, from *queue, why *Error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		s.failClosed(batch)
		return
	}
	defer s.mu.Unlock()
	for _, r := range batch {
		r.refusedBy, r.refusal = from, why
	}
	s.unrouted = append(s.unrouted, batch...)
	if !s.refreshing {
		s.refreshing = true
		s.running.Go(s.refreshRoutes)
	}
}

// refreshRoutes reads the container and reroutes the waiting records, until there
// are none.
func (s *Sink) refreshRoutes() {
	for {
		s.mu.Lock()
		if len(s.unrouted) == 0 {
			s.refreshing = false
			s.mu.Unlock()
			return
		}
		// Records that are added from now on need a later read.
		s.routing, s.unrouted = s.unrouted, nil
		s.mu.Unlock()

		out, e := s.updateRoutes(s.ctx)

		s.mu.Lock()
		found := s.routing
		s.routing = nil
		s.mu.Unlock()
		for _, r := range found {
			s.reroute(r, out, e)
		}
	}
}

// reroute sends a record on after the container was read.
func (s *Sink) reroute(r *record, v outcome, e *Error) {
	if e != nil {
		s.finish(r, e.result(v, 0, r.cost))
		return
	}
	q, err := s.routes.Load().find(r)
	switch {
	case err != nil:
		s.finish(r, s.reject(r, err))
	case r.refusal != nil && q == r.refusedBy:
		v := retryable // the split is still in progress
		if r.refusal.Status == http.StatusBadRequest {
			v = rejected // the key differs from the document's
		}
		own := *r.refusal
		own.Document = r.doc.ID
		s.finish(r, own.result(v, 0, r.cost))
	case !q.push(r):
		s.awaitRoutes([]*record{r}, q, nil)
	}
}

// updateRoutes reads the container and its ranges, and replaces the routing table.
func (s *Sink) updateRoutes(ctx context.Context) (outcome, *Error) {
	next, list, v, e := s.readRoutes(ctx)
	if e != nil {
		return v, e
	}
	if err := s.installRoutes(next, list); err != nil {
		// A list that was read during a split has a gap.
		return retryable, s.badAnswer(err)
	}
	return written, nil
}

// Check reads the container. Its error says in one line what is wrong: the endpoint,
// the key, a name, or, with [Config.Conditional], multi-region writes. It does not
// check the right to write.
func (s *Sink) Check(ctx context.Context) error {
	if _, _, _, e := s.readRoutes(ctx); e != nil {
		return e
	}
	if s.cfg.Conditional && s.account.multiRegionWrites() {
		return fmt.Errorf("cosmos: %s: %w", s.account.name(), ErrMultiRegionWrites)
	}
	return nil
}

// readRoutes reads the container and its ranges, and changes nothing.
func (s *Sink) readRoutes(ctx context.Context) (*routingTable, []span, outcome, *Error) {
	var container struct {
		RID          string `json:"_rid"`
		PartitionKey struct {
			Paths   []string
			Kind    string
			Version int
		}
		UniqueKeyPolicy struct {
			UniqueKeys []struct{ Paths []string }
		}
	}
	if v, e := s.get(ctx, "colls", &container, nil); e != nil {
		return nil, nil, v, e
	}
	next := &routingTable{rid: container.RID, paths: container.PartitionKey.Paths}
	for _, key := range container.UniqueKeyPolicy.UniqueKeys {
		next.unique = append(next.unique, strings.Join(key.Paths, " with "))
	}
	next.hash = partitionkey.Definition{Hierarchical: container.PartitionKey.Kind == "MultiHash", Version: max(1, container.PartitionKey.Version)}
	if len(next.paths) == 0 || next.hash.Version > 2 {
		return nil, nil, outage, s.badAnswer(fmt.Errorf("a partition key of %d paths and version %d", len(next.paths), next.hash.Version))
	}
	var list []span
	header := [][2]string{{"x-ms-max-item-count", "-1"}}
	for range 1000 {
		var answer struct {
			PartitionKeyRanges []span
		}
		req := &request{header: header}
		if v, e := s.get(ctx, "pkranges", &answer, req); e != nil {
			return nil, nil, v, e
		}
		list = append(list, answer.PartitionKeyRanges...)
		more := req.head.Get("x-ms-continuation")
		if more == "" {
			return next, list, written, nil
		}
		header = [][2]string{header[0], {"x-ms-continuation", more}}
	}
	return nil, nil, outage, s.badAnswer(errors.New("an endless list of partition key ranges"))
}

func (s *Sink) badAnswer(err error) *Error {
	return &Error{Container: s.account.name(), Status: http.StatusBadGateway, Message: err.Error()}
}

// get reads a resource of the account as JSON.
func (s *Sink) get(ctx context.Context, kind string, into any, req *request) (outcome, *Error) {
	if req == nil {
		req = &request{}
	}
	req.method, req.kind = http.MethodGet, kind
	if e := s.account.send(ctx, req); e != nil {
		return e.outcome(), e
	}
	if v := batchOutcomeOf(req.status, subStatus(req.head)); v != written {
		if v != retryable && v != moved {
			v = outage
		}
		return v, s.account.errorOf(req)
	}
	if err := json.Unmarshal(req.answer.Bytes(), into); err != nil {
		return outage, s.badAnswer(fmt.Errorf("the response for %s cannot be parsed", kind))
	}
	return written, nil
}

// span is a partition key range as the account returns it.
type span struct {
	ID                         rangeID
	MinInclusive, MaxExclusive string
	Parents                    []rangeID

	partitionkey.Range `json:"-"`
}

// rangeID is a string, but some servers other than Azure's return a number.
type rangeID string

func (id *rangeID) UnmarshalJSON(data []byte) error {
	*id = rangeID(strings.Trim(string(data), `"`))
	return nil
}

// installRoutes makes next the routing table, with queues for the ranges. The queues
// of ranges that still exist are kept. Records of the other queues are routed again.
func (s *Sink) installRoutes(next *routingTable, list []span) error {
	replaced := map[rangeID]bool{}
	for _, p := range list {
		for _, id := range p.Parents {
			replaced[id] = true
		}
	}
	list = slices.DeleteFunc(list, func(p span) bool { return replaced[p.ID] })
	for i := range list {
		var err error
		if list[i].Range, err = partitionkey.ParseRange(list[i].MinInclusive, list[i].MaxExclusive); err != nil {
			return err
		}
	}
	slices.SortFunc(list, func(a, b span) int { return partitionkey.Compare(a.Min, b.Min) })
	for _, p := range list {
		next.ranges = append(next.ranges, p.Range)
	}
	if err := partitionkey.Complete(next.ranges); err != nil {
		return err
	}

	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return ErrClosed
	}
	last := s.routes.Load()
	if last == nil {
		last = &routingTable{}
	}
	kept := map[*queue]bool{}
	alike := last.rid == next.rid && last.hash == next.hash && slices.Equal(last.paths, next.paths)
	for _, p := range list {
		i := slices.IndexFunc(last.queues, func(q *queue) bool { return alike && q.id == string(p.ID) && q.span == p.Range })
		var q *queue
		if i >= 0 {
			q = last.queues[i]
		} else {
			q = newQueue(s, string(p.ID), p.Range)
		}
		kept[q] = true
		next.queues = append(next.queues, q)
	}
	if !alike {
		s.versions.clear()
	}
	if err := s.shareBudget(next.queues); err != nil {
		s.mu.Unlock()
		return err
	}
	for _, q := range next.queues {
		if !slices.Contains(last.queues, q) {
			s.running.Go(func() { q.pump(s.ctx) })
		}
	}
	s.routes.Store(next)
	s.mu.Unlock()

	for _, q := range last.queues {
		if !kept[q] {
			for _, r := range q.close() {
				s.route(r)
			}
		}
	}
	return nil
}

// shareBudget gives each queue an equal share of the request units.
func (s *Sink) shareBudget(queues []*queue) error {
	if s.cfg.RU == 0 {
		return nil
	}
	share := s.cfg.RU / float64(len(queues))
	for _, q := range queues {
		var err error
		if q.budget == nil {
			q.budget, err = limiter.NewBudget(share, s.clock)
		} else {
			err = q.budget.SetRate(share)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// completeCancelled completes queued records whose contexts have ended.
func (s *Sink) completeCancelled() {
	var last context.Context
	var ended bool
	over := func(r *record) bool {
		if r.ctx != last { // most have the same
			last, ended = r.ctx, r.ctx.Err() != nil
		}
		return ended
	}
	var out []*record
	s.mu.Lock()
	for _, list := range []*[]*record{&s.unrouted, &s.routing} {
		*list = slices.DeleteFunc(*list, func(r *record) bool {
			if over(r) {
				out = append(out, r)
				return true
			}
			return false
		})
	}
	s.mu.Unlock()
	if t := s.routes.Load(); t != nil {
		for _, q := range t.queues {
			q.mu.Lock()
			out = append(out, q.waiting.drop(over)...)
			q.mu.Unlock()
		}
	}
	for _, r := range out {
		s.finish(r, driver.WriteResult{Err: r.ctx.Err(), Cost: r.cost})
	}
}
