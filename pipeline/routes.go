package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/memory"
)

// routing says which events a pipeline handles, and which target each of them goes to.
type routing struct {
	only   filter  // the events to handle
	routes []route // at least one: the only one has the target of a file without routes
	listed bool    // the file has routes
	// ignoreOthers: events that no route takes count as done. Otherwise they become dead letters.
	ignoreOthers bool
	proof        proof // of the routes and of only
}

// route is a target, and which events go there.
type route struct {
	only   filter
	target target
	place  strictyaml.Place // of the target
}

// goesTo reports whether a route's target is of a type.
func goesTo[T target](r route) bool {
	_, ok := r.target.(T)
	return ok
}

// target returns the target of a file without routes, else nil.
func (p *Pipeline) target() target {
	if p.routing.listed {
		return nil
	}
	return p.routing.routes[0].target
}

// maxRoutes bounds the number of a pipeline's routes.
const maxRoutes = 100

// readTargets reads the target, or routes. It returns false if there is nothing to check.
func (r *reader) readTargets(target, routes, otherwise *strictyaml.Node) bool {
	switch {
	case routes == nil && otherwise != nil:
		otherwise.Fail("goes with routes")
	case routes != nil && target != nil:
		routes.Fail("goes without target, line %d: write the target into a route", target.Place().Line)
		return false
	case routes != nil && r.Rollup:
		routes.Fail("cannot be combined with memory, whose statistics go to one target")
		return false
	}
	switch {
	case target != nil:
		r.places.target = target.Place()
		r.routing.routes = []route{{target: r.readTarget(*target, &r.routing.only), place: target.Place()}}
	case routes != nil:
		r.places.target = routes.Place()
		r.readRoutes(*routes, otherwise)
	}
	r.Table = r.routing.tables()
	return len(r.routing.routes) > 0
}

// readRoutes reads routes and otherwise.
func (r *reader) readRoutes(n strictyaml.Node, otherwise *strictyaml.Node) {
	r.routing.listed = true
	var open *strictyaml.Node // a route that takes every event
	n.Items(maxRoutes, func(n strictyaml.Node) {
		if open != nil {
			open.Fail("takes every event, so that the routes after it get none: give it the key only, or write it last")
			open = nil
		}
		var target *strictyaml.Node
		o := route{target: &tableTarget{}}
		if n.Object(strictyaml.Keys{"only": o.only.read, "target": func(n strictyaml.Node) { target = &n }}, "target") {
			o.target, o.place = r.readTarget(*target, &o.only), target.Place()
			if o.only.given == nil {
				open = &n
			}
			r.checkKind(o, *target)
		}
		r.routing.routes = append(r.routing.routes, o)
	})
	if otherwise == nil {
		return
	}
	var word string
	if otherwise.OneOf(&word, "deadletter", "ignore") {
		r.routing.ignoreOthers = word == "ignore"
	}
	if open != nil {
		otherwise.Fail("the last route takes every event: remove one of them")
	}
}

// checkKind refuses a database beside other targets: only the tables of one database are written in
// the transaction of the checkpoint.
func (r *reader) checkKind(o route, target strictyaml.Node) {
	if len(r.routing.routes) == 0 {
		return
	}
	if first := r.routing.routes[0].target; transactional(first) != transactional(o.target) {
		target.Fail("is %s, and that of the first route %s: write all routes to one database, or all outside of it; a second pipeline with a consumer group of its own can do the rest",
			whereabouts(o.target), whereabouts(first))
	}
	if goesTo[*cosmosTarget](o) && r.given.rateRU != nil && slices.ContainsFunc(r.routing.routes, goesTo[*cosmosTarget]) {
		target.Fail("rate.ru is for one container: write rate: {events: …}, or one route to Cosmos DB")
	}
}

// tables are the tables of the routes, empty if a target is another.
func (o *routing) tables() string {
	var names []string
	for _, r := range o.routes {
		t, ok := r.target.(*tableTarget)
		if !ok || t.table == "" {
			return ""
		}
		names = append(names, t.table)
	}
	return strings.Join(names, ", ")
}

// errNoRoute is why an event becomes a dead letter that no route takes.
var errNoRoute = errors.New("no route takes the event: add one, or write otherwise: ignore")

// leftOut is the route of events that are not handled.
const leftOut = -1

// route returns the index of the route that an event takes.
func (o *routing) route(e *sluice.Event) (int, error) {
	if ok, err := o.only.matches(e); !ok || err != nil {
		return leftOut, err
	}
	for i := range o.routes {
		switch ok, err := o.routes[i].only.matches(e); {
		case err != nil:
			return leftOut, fmt.Errorf("route %d: %w", i+1, err)
		case ok:
			return i, nil
		}
	}
	if o.ignoreOthers {
		return leftOut, nil
	}
	return leftOut, errNoRoute
}

// deliveredTo is route for the delivery, whose errors say whether events have had a target before.
func (o *routing) deliveredTo(e *sluice.Event) (int, error) {
	to, err := o.route(e)
	if err != nil || to != leftOut {
		err = o.proof.record(err)
	}
	return to, err
}

// Filter returns which events the pipeline handles, as [sluice.Config] has it; nil: every one. An
// event for which that cannot be decided is handled, and becomes a dead letter. Where there is no
// memory to decode a body, the delivery decides.
func (p *Pipeline) Filter() func(*sluice.Event) bool { return p.filterWithin(memory.Process()) }

// filterWithin is Filter with the budget that decoded bodies are charged to.
func (p *Pipeline) filterWithin(budget *memory.Budget) func(*sluice.Event) bool {
	if p.routing.only.given == nil && !p.routing.ignoreOthers && !p.body.format.SkipsNulls() {
		return nil
	}
	var retryAt atomic.Int64 // when a body is fetched and decoded again after an outage, in Unix nanoseconds
	return func(e *sluice.Event) bool {
		if time.Now().UnixNano() < retryAt.Load() && p.decodes(e) && !p.routing.excludes(e) {
			return true // the delivery decides
		}
		ctx, cancel := context.WithTimeout(context.Background(), decodeTimeout)
		defer cancel()
		charged := budget.Trying()
		defer func() { charged.Collect().Release() }()
		handled, err := p.Handles(memory.NewContext(ctx, charged), e)
		if errors.Is(err, memory.ErrBusy) {
			return true // the delivery, which waits for memory, decides
		}
		if err != nil {
			retryAt.Store(time.Now().Add(decodeTimeout).UnixNano())
			return true
		}
		return handled
	}
}

// Handles reports whether the pipeline handles an event. One for which that cannot be decided is
// handled, and becomes a dead letter. The error is an outage of what its body is fetched from or
// decoded with, or that there is no memory for it.
func (p *Pipeline) Handles(ctx context.Context, e *sluice.Event) (bool, error) {
	if e.Body == nil && p.body.format.SkipsNulls() && !blobstore.IsReference(e) {
		return false, nil
	}
	if p.decodes(e) {
		if p.routing.excludes(e) {
			return false, nil
		}
		whole, err := p.body.wholeEvent(ctx, e)
		switch {
		case errors.Is(err, sluice.ErrOutage), errors.Is(err, memory.ErrBusy):
			return false, err
		case err != nil:
			return true, nil
		}
		e = whole
	}
	to, err := p.routing.route(e)
	return to != leftOut || err != nil, nil
}

// decodes reports whether the body must be fetched or decoded to decide where an event goes.
func (p *Pipeline) decodes(e *sluice.Event) bool {
	return p.routing.needsBody(e) && (p.body.format != nil || blobstore.IsReference(e))
}

// decodeTimeout bounds the decoding of a body for a filter, and is how long after an outage no
// filter waits for another one. The delivery decodes the body again, and reports what is wrong.
const decodeTimeout = 10 * time.Second

// needsBody reports whether the decoded body decides where an event goes.
func (o *routing) needsBody(e *sluice.Event) bool {
	return o.only.needsBody(e) || slices.ContainsFunc(o.routes, func(r route) bool { return r.only.needsBody(e) })
}

// excludes reports whether an event whose body is not decoded shows that it is left out.
func (o *routing) excludes(e *sluice.Event) bool {
	return o.only.excludes(e) || o.ignoreOthers && !slices.ContainsFunc(o.routes, func(r route) bool { return !r.only.excludes(e) })
}

// selective reports whether not every event goes to the only target.
func (o *routing) selective() bool { return o.only.given != nil || o.listed }

// routed returns the handler that writes events to the pipeline's tables and statements.
func routed[Tx any](p *Pipeline, handler func(transactionalTarget) sluice.Handler[Tx]) sluice.Handler[Tx] {
	o := &p.routing
	to := make([]sluice.Handler[Tx], len(o.routes))
	for i, r := range o.routes {
		to[i] = handler(r.target.(transactionalTarget))
	}
	if !o.selective() {
		return to[0]
	}
	apart := o.tablesApart()
	return func(ctx context.Context, tx Tx, b sluice.Batch) error {
		parts, err := o.divide(b.Events, apart)
		if err != nil {
			return err
		}
		for _, part := range parts {
			some := b
			some.Events = part.events
			if err := to[part.target](ctx, tx, some); err != nil {
				return part.inBatch(err)
			}
		}
		return nil
	}
}

// part are events of a batch that go to one target together.
type part struct {
	target  int
	events  []*sluice.Event
	indices []int // their indices in the batch
}

// divide divides a batch in such a way that the effects are those of the log's order: into runs of
// events of one route or, where routes cannot affect each other, by route.
func (o *routing) divide(events []*sluice.Event, apart bool) ([]part, error) {
	var parts []part
	var rejected []error
	for i, e := range events {
		to, err := o.deliveredTo(e)
		if err != nil {
			rejected = append(rejected, &driver.EventError{Index: i, Err: driver.Reject(err)})
			continue
		}
		if to == leftOut {
			continue
		}
		n := len(parts) - 1
		if apart {
			n = slices.IndexFunc(parts, func(p part) bool { return p.target == to })
		}
		if n < 0 || parts[n].target != to {
			n, parts = len(parts), append(parts, part{target: to})
		}
		parts[n].events, parts[n].indices = append(parts[n].events, e), append(parts[n].indices, i)
	}
	if apart {
		slices.SortFunc(parts, func(a, b part) int { return a.target - b.target })
	}
	return parts, errors.Join(rejected...)
}

// tablesApart reports whether every route inserts into a table that no other has. Then only
// constraints between the tables depend on the order in which they are written: it is that of the
// routes.
func (o *routing) tablesApart() bool {
	seen := map[string]bool{}
	for _, r := range o.routes {
		t, ok := r.target.(*tableTarget)
		if !ok || seen[strings.ToLower(t.table)] {
			return false
		}
		seen[strings.ToLower(t.table)] = true
	}
	return true
}

// inBatch returns a target's error with the indices of the batch.
func (o *part) inBatch(err error) error {
	switch err := err.(type) {
	case *driver.EventError:
		return &driver.EventError{Index: o.indices[err.Index], Err: err.Err}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range err.Unwrap() {
			all = append(all, o.inBatch(one))
		}
		return errors.Join(all...)
	}
	return err
}
