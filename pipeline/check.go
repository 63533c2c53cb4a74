package pipeline

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Check is one part of a pipeline that has to answer before the pipeline can run.
type Check struct {
	Part string // source, claim check, format, database, leases, target, copies of dead letters, or published progress
	// Run connects to the part and changes nothing. The error says where the file names the part.
	Run func(ctx context.Context) error
}

// Checks returns the checks of all parts, which may run at the same time. That of a database also
// checks a target in it: that the table has the right columns.
func (p *Pipeline) Checks() []Check {
	list := []Check{{"source", func(ctx context.Context) error { _, err := p.Describe(ctx); return err }}}
	if p.body.claim != nil {
		list = append(list, Check{"claim check", func(ctx context.Context) error { return p.problem(p.places.claim, p.body.claim.Check(ctx)) }})
	}
	if p.body.format != nil {
		list = append(list, Check{"format", p.checkFormat})
	}
	part := "database"
	if _, blobs := p.storage.database.(blobContainer); blobs {
		part = "leases"
	}
	list = append(list, Check{part, p.checkDatabase})
	if p.storage.leases != nil {
		list = append(list, Check{"leases", func(ctx context.Context) error {
			_, err := p.storage.leases.check(ctx)
			return p.problem(p.places.leases, err)
		}})
	}
	if p.AtLeastOnce() {
		for _, r := range p.routing.routes {
			list = append(list, Check{"target", func(ctx context.Context) error { return p.problem(r.place, r.target.check(ctx, emptyCatalog{})) }})
		}
	}
	if p.copies != nil {
		list = append(list, Check{"copies of dead letters", p.checkCopies})
	}
	if p.places.progress != (strictyaml.Place{}) {
		list = append(list, Check{"published progress", p.checkProgress})
	}
	return list
}

// Check connects to all parts, and changes nothing. The error has one line for each that fails its
// check.
func (p *Pipeline) Check(ctx context.Context) error {
	checks := p.Checks()
	errs := make([]chan error, len(checks))
	for i, c := range checks {
		errs[i] = make(chan error, 1)
		go func() { errs[i] <- c.Run(ctx) }()
	}
	var all []error
	for _, err := range errs {
		all = append(all, <-err)
	}
	return errors.Join(all...)
}

// Describe asks the log for the topic, and reads no event.
func (p *Pipeline) Describe(ctx context.Context) (driver.Topic, error) {
	var topic driver.Topic
	source, err := p.source.open("")
	if err == nil {
		topic, err = source.Describe(ctx)
		if closing := source.Close(ctx); err == nil {
			err = closing
		}
	}
	return topic, p.problem(p.places.source, err)
}

func (p *Pipeline) checkFormat(ctx context.Context) error {
	return p.problem(p.places.format, p.body.format.Check(ctx))
}

func (p *Pipeline) checkDatabase(ctx context.Context) error {
	c, done, err := p.storage.database.inspect(ctx)
	if err != nil {
		return p.problem(p.places.database, err)
	}
	defer done()
	if p.AtLeastOnce() {
		return nil // the targets are elsewhere
	}
	if c == nil {
		c = emptyCatalog{}
	}
	var errs []error
	for _, r := range p.routing.routes {
		errs = append(errs, p.problem(r.place, r.target.check(ctx, c)))
	}
	return errors.Join(errs...)
}
