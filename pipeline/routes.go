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
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// route is one of several targets of a pipeline, and which events go there. Its pipeline is the
// whole one with this target only.
type route struct {
	*Pipeline
}

// maxRoutes bounds the number of a pipeline's routes.
const maxRoutes = 100

// readTargets reads the target, or routes. It returns false if there is nothing to check.
func (p *Pipeline) readTargets(target, routes, otherwise *strictyaml.Node) bool {
	switch {
	case routes == nil && otherwise != nil:
		otherwise.Fail("goes with routes")
	case routes != nil && target != nil:
		routes.Fail("goes without target, line %d: write the target into a route", target.Place().Line)
		return false
	case routes != nil && p.rollup != nil:
		routes.Fail("cannot be combined with memory, whose statistics go to one target")
		return false
	}
	switch {
	case target != nil:
		p.readTarget(*target)
	case routes != nil:
		p.readRoutes(*routes, otherwise)
	}
	return target != nil || len(p.routes) > 0
}

// readRoutes reads routes and otherwise.
func (p *Pipeline) readRoutes(n strictyaml.Node, otherwise *strictyaml.Node) {
	p.places.target = n.Place()
	var open *strictyaml.Node // a route that takes every event
	n.Items(maxRoutes, func(n strictyaml.Node) {
		if open != nil {
			open.Fail("takes every event, so that the routes after it get none: give it the key only, or write it last")
			open = nil
		}
		r := route{&Pipeline{
			Name: p.Name, System: p.System, Group: p.Group, source: p.source, shared: p.shared, stampKey: p.stampKey,
			database: p.database, atLeastOnce: p.atLeastOnce,
		}}
		var target *strictyaml.Node
		if n.Object(strictyaml.Keys{"only": r.only.read, "target": func(n strictyaml.Node) { target = &n }}, "target") {
			r.readTarget(*target)
			if r.only.given == nil {
				open = &n
			}
			p.checkKind(r, *target)
		}
		p.routes = append(p.routes, r)
	})
	p.Table = p.tables()
	if otherwise == nil {
		return
	}
	var word string
	if otherwise.OneOf(&word, "deadletter", "ignore") {
		p.ignoreOthers = word == "ignore"
	}
	if open != nil {
		otherwise.Fail("the last route takes every event: remove one of them")
	}
}

// checkKind refuses a database beside other targets: only the tables of one database are written in
// the transaction of the checkpoint.
func (p *Pipeline) checkKind(r route, target strictyaml.Node) {
	if len(p.routes) > 0 && p.routes[0].AtLeastOnce() != r.AtLeastOnce() {
		target.Fail("is %s, and that of the first route %s: write all routes to one database, or all outside of it; a second pipeline with a consumer group of its own can do the rest",
			r.whereabouts(), p.routes[0].whereabouts())
	}
	if r.cosmos != nil && p.atLeastOnce.rateRU != nil && slices.ContainsFunc(p.routes, func(o route) bool { return o.cosmos != nil }) {
		target.Fail("rate.ru is for one container: write rate: {events: …}, or one route to Cosmos DB")
	}
}

// whereabouts says where the target is, for errors.
func (p *Pipeline) whereabouts() string {
	if p.AtLeastOnce() {
		return "outside a database"
	}
	return "in a database"
}

// targets are the pipeline itself, or with routes those of its routes: each has one target.
func (p *Pipeline) targets() []*Pipeline {
	if len(p.routes) == 0 {
		return []*Pipeline{p}
	}
	list := make([]*Pipeline, len(p.routes))
	for i, r := range p.routes {
		list[i] = r.Pipeline
	}
	return list
}

// tables are the tables of the routes, empty if a target is another.
func (p *Pipeline) tables() string {
	var names []string
	for _, r := range p.routes {
		if r.Table == "" {
			return ""
		}
		names = append(names, r.Table)
	}
	return strings.Join(names, ", ")
}

// errNoRoute is why an event becomes a dead letter that no route takes.
var errNoRoute = errors.New("no route takes the event: add one, or write otherwise: ignore")

// leftOut is the route of events that are not handled.
const leftOut = -1

// route returns the index in targets of where an event goes.
func (p *Pipeline) route(e *sluice.Event) (int, error) {
	if ok, err := p.only.matches(e); !ok || err != nil {
		return leftOut, err
	}
	for i := range p.routes {
		switch ok, err := p.routes[i].only.matches(e); {
		case err != nil:
			return leftOut, fmt.Errorf("route %d: %w", i+1, err)
		case ok:
			return i, nil
		}
	}
	switch {
	case len(p.routes) == 0:
		return 0, nil
	case p.ignoreOthers:
		return leftOut, nil
	}
	return leftOut, errNoRoute
}

// deliveredTo is route for the delivery, whose errors say whether events have had a target before.
func (p *Pipeline) deliveredTo(e *sluice.Event) (int, error) {
	to, err := p.route(e)
	if err != nil || to != leftOut {
		err = p.choices.of(err)
	}
	return to, err
}

// Filter returns which events the pipeline handles, as [sluice.Config] has it; nil: every one. An
// event for which that cannot be decided is handled, and becomes a dead letter.
func (p *Pipeline) Filter() func(*sluice.Event) bool {
	if p.only.given == nil && !p.ignoreOthers {
		return nil
	}
	var retryAt atomic.Int64 // when a body is fetched and decoded again after an outage, in Unix nanoseconds
	return func(e *sluice.Event) bool {
		if time.Now().UnixNano() < retryAt.Load() && p.decodes(e) && !p.excludes(e) {
			return true // the delivery decides
		}
		ctx, cancel := context.WithTimeout(context.Background(), decodeTimeout)
		defer cancel()
		handled, err := p.Handles(ctx, e)
		if err != nil {
			retryAt.Store(time.Now().Add(decodeTimeout).UnixNano())
			return true
		}
		return handled
	}
}

// Handles reports whether the pipeline handles an event. One for which that cannot be decided is handled,
// and becomes a dead letter. The error is an outage of what its body is fetched from or decoded with.
func (p *Pipeline) Handles(ctx context.Context, e *sluice.Event) (bool, error) {
	if p.decodes(e) {
		if p.excludes(e) {
			return false, nil
		}
		whole, err := p.wholeEvent(ctx, e)
		switch {
		case errors.Is(err, sluice.ErrOutage):
			return false, err
		case err != nil:
			return true, nil
		}
		e = whole
	}
	to, err := p.route(e)
	return to != leftOut || err != nil, nil
}

// decodes reports whether the body must be fetched or decoded to decide where an event goes.
func (p *Pipeline) decodes(e *sluice.Event) bool {
	return p.needsBody(e) && (p.format != nil || blobstore.IsReference(e))
}

// decodeTimeout bounds the decoding of a body for a filter, and is how long after an outage no filter
// waits for another one. The delivery decodes the body again, and reports what is wrong.
const decodeTimeout = 10 * time.Second

// needsBody reports whether the decoded body decides where an event goes.
func (p *Pipeline) needsBody(e *sluice.Event) bool {
	return p.only.needsBody(e) || slices.ContainsFunc(p.routes, func(r route) bool { return r.only.needsBody(e) })
}

// excludes reports whether an event whose body is not decoded shows that it is left out.
func (p *Pipeline) excludes(e *sluice.Event) bool {
	return p.only.excludes(e) || p.ignoreOthers && !slices.ContainsFunc(p.routes, func(r route) bool { return !r.only.excludes(e) })
}

// selective reports whether not every event goes to the only target.
func (p *Pipeline) selective() bool { return p.only.given != nil || len(p.routes) > 0 }

// routed returns the handler that writes events to the pipeline's tables and statements.
func routed[Tx any](p *Pipeline, handler func(*target) sluice.Handler[Tx]) sluice.Handler[Tx] {
	targets := p.targets()
	to := make([]sluice.Handler[Tx], len(targets))
	for i, t := range targets {
		to[i] = handler(&t.target)
	}
	if !p.selective() {
		return to[0]
	}
	apart := p.tablesApart()
	return func(ctx context.Context, tx Tx, b sluice.Batch) error {
		parts, err := p.divide(b.Events, apart)
		if err != nil {
			return err
		}
		for _, part := range parts {
			some := b
			some.Events = part.events
			if err := to[part.to](ctx, tx, some); err != nil {
				return part.inBatch(err)
			}
		}
		return nil
	}
}

// part are events of a batch that go to one target together.
type part struct {
	to     int
	events []*sluice.Event
	at     []int // their indices in the batch
}

// divide divides a batch in such a way that the effects are those of the log's order: into runs of
// events of one route or, where routes cannot affect each other, by route.
func (p *Pipeline) divide(events []*sluice.Event, apart bool) ([]part, error) {
	var parts []part
	var rejected []error
	for i, e := range events {
		to, err := p.deliveredTo(e)
		if err != nil {
			rejected = append(rejected, &driver.EventError{Index: i, Err: driver.Reject(err)})
			continue
		}
		if to == leftOut {
			continue
		}
		n := len(parts) - 1
		if apart {
			n = slices.IndexFunc(parts, func(o part) bool { return o.to == to })
		}
		if n < 0 || parts[n].to != to {
			n, parts = len(parts), append(parts, part{to: to})
		}
		parts[n].events, parts[n].at = append(parts[n].events, e), append(parts[n].at, i)
	}
	if apart {
		slices.SortFunc(parts, func(a, b part) int { return a.to - b.to })
	}
	return parts, errors.Join(rejected...)
}

// tablesApart reports whether every route inserts into a table that no other has. Then only
// constraints between the tables depend on the order in which they are written: it is that of the
// routes.
func (p *Pipeline) tablesApart() bool {
	seen := map[string]bool{}
	for _, t := range p.targets() {
		table := strings.ToLower(t.target.table)
		if table == "" || seen[table] {
			return false
		}
		seen[table] = true
	}
	return true
}

// inBatch returns a target's error with the indices of the batch.
func (o *part) inBatch(err error) error {
	switch err := err.(type) {
	case *driver.EventError:
		return &driver.EventError{Index: o.at[err.Index], Err: err.Err}
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range err.Unwrap() {
			all = append(all, o.inBatch(one))
		}
		return errors.Join(all...)
	}
	return err
}
