package peek

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline"
)

// Decoder decodes events as a pipeline does. nil decodes nothing.
type Decoder struct {
	Pipeline *pipeline.Pipeline

	mu        sync.Mutex
	outage    error // the last one
	outageEnd time.Time
}

// Bounds of decoding.
const (
	decodeFor = 15 * time.Second // one event
	outageFor = 30 * time.Second // no other event waits for what did not answer
)

// event returns an event with its decoded body.
func (d *Decoder) event(ctx context.Context, e *driver.Event) (*driver.Event, error) {
	if e.Undecodable != "" {
		return nil, fmt.Errorf("the event cannot be decoded (%s)", e.Undecodable)
	}
	if d == nil {
		return e, nil
	}
	d.mu.Lock()
	known := d.outage
	if time.Now().After(d.outageEnd) {
		known = nil
	}
	d.mu.Unlock()
	if known != nil {
		return nil, known
	}
	bound, cancel := context.WithTimeout(ctx, decodeFor)
	defer cancel()
	whole, err := d.Pipeline.Decoded(bound, e)
	if err != nil && ctx.Err() == nil && (errors.Is(err, driver.ErrOutage) || bound.Err() != nil) {
		err = driver.Outage(err)
		d.mu.Lock()
		d.outage, d.outageEnd = err, time.Now().Add(outageFor)
		d.mu.Unlock()
	}
	return whole, err
}

// Match selects events.
type Match struct{ Filter *pipeline.EventFilter }

// matches reports whether an event is selected. It decodes the body only if that decides.
func (m *Match) matches(ctx context.Context, d *Decoder, e *driver.Event) (bool, error) {
	if m.Filter.NeedsBody(e) {
		if m.Filter.Excludes(e) {
			return false, nil
		}
		var err error
		if e, err = d.event(ctx, e); err != nil {
			return false, err
		}
	}
	return m.Filter.Matches(e)
}
