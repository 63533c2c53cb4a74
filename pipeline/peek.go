package pipeline

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Decoded returns an event with the body that the pipeline handles: fetched from its blob and
// decoded, or e itself if there is nothing to do. An [sluice.ErrOutage] is that of the blobs or of
// a schema registry; every other error is about the event. It is for tools that only look.
func (p *Pipeline) Decoded(ctx context.Context, e *sluice.Event) (*sluice.Event, error) {
	return p.body.wholeEvent(ctx, e)
}

// EventFilter selects events by values that they have, as the key only of a pipeline file does. It
// is safe for concurrent use.
type EventFilter struct{ filter filter }

// ParseFilter reads a filter for events of a system: what a file has below only, as YAML, such as
// `body.type: order` or `{body.type: [order, refund], properties.kind: {not: test}}`. Errors call
// it by name.
func ParseFilter(name, text string, system System) (*EventFilter, error) {
	f := &EventFilter{}
	if err := strictyaml.Read(name, []byte(text), os.LookupEnv, f.filter.read); err != nil {
		return nil, err
	}
	for _, m := range f.filter.mappings() {
		if m == nil {
			continue
		}
		m.raw = system == Kafka
		for _, c := range m.columns {
			if slices.ContainsFunc(c.origin.leaves(), func(leaf origin) bool { return leaf.field == fieldTopic }) {
				return nil, fmt.Errorf("%s: %s: is the same for all events here: choose the topic in place of that", name, c.origin)
			}
		}
	}
	return f, nil
}

// Excludes reports whether an event whose body is not decoded shows that it does not match.
func (f *EventFilter) Excludes(e *sluice.Event) bool { return f.filter.excludes(e) }

// NeedsBody reports whether the decoded body of an event decides.
func (f *EventFilter) NeedsBody(e *sluice.Event) bool { return f.filter.needsBody(e) }

// Matches reports whether an event with a decoded body matches. It is an error if that cannot be
// decided, because the body is not JSON or a value is not a text.
func (f *EventFilter) Matches(e *sluice.Event) (bool, error) { return f.filter.matches(e) }
