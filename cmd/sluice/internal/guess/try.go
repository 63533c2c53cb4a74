package guess

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/pipeline"
)

// kindOf says whether a body is json, text or bytes.
func kindOf(body []byte) string {
	switch {
	case json.Valid(body):
		return "json"
	case utf8.Valid(body) && bytes.IndexByte(body, 0) < 0:
		return "text"
	}
	return "bytes"
}

// Values that are valid in a file in place of variables.
const (
	anyHub    = "Endpoint=sb://sluice-init.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=aw=="
	anyBroker = "localhost:9092"
)

// lookup returns the value of a variable in the file.
func (c *Config) lookup(name string) (string, bool) {
	if c.Lookup != nil {
		if value, ok := c.Lookup(name); ok {
			return value, true
		}
	}
	log := (*newfile.Log)(nil)
	if c.Choice.Filled != nil {
		log = c.Choice.Filled.Log
	}
	switch {
	case name == "EVENTHUB_CONNECTION_STRING", log != nil && log.Connection == "${"+name+"}":
		return anyHub, true
	case name == "KAFKA_BROKERS":
		return anyBroker, true
	case name == "DATABASE_URL", c.Choice.Address == "${"+name+"}":
		return newfile.AnyAddress(c.Choice.Database), true
	}
	return "x", true
}

// Tried is what became of the samples.
type Tried struct {
	Events, Rows, Skipped, Dead int
	Reasons                     []Reason // the first ones
}

// Reason is why some events would become dead letters.
type Reason struct {
	Events int
	Text   string // of the first of them
	place  string
}

// mostReasons is how many reasons are kept.
const mostReasons = 5

// Try reads the file of a guess, and tries it on the samples.
func Try(ctx context.Context, samples Samples, cfg *Config, text string) (*Tried, error) {
	p, err := pipeline.Parse(cfg.Name+".yaml", []byte(text), cfg.lookup)
	if err != nil {
		return nil, fmt.Errorf("what was guessed makes no valid file, which is a mistake of this program: %w", err)
	}
	if cfg.Database != "" {
		_ = p.CheckDatabase(ctx) // then values that the columns would change are refused
	}
	t := &Tried{}
	return t, samples.Each(ctx, func(e *sluice.Event) error {
		tried, err := p.Try(ctx, e)
		if err != nil {
			return err
		}
		t.add(e, &tried)
		return nil
	})
}

func (t *Tried) add(e *sluice.Event, tried *pipeline.Tried) {
	t.Events++
	switch {
	case tried.Skipped:
		t.Skipped++
		return
	case tried.Err == nil:
		t.Rows += len(tried.Rows)
		return
	}
	t.Dead++
	at := "event"
	if first, _, ok := strings.Cut(tried.Err.Error(), ":"); ok {
		at = first
	}
	for i := range t.Reasons {
		if t.Reasons[i].place == at {
			t.Reasons[i].Events++
			return
		}
	}
	if len(t.Reasons) < mostReasons {
		t.Reasons = append(t.Reasons, Reason{1, fmt.Sprintf("%v (partition %s, sequence %d)", tried.Err, e.Partition, e.Sequence), at})
	}
}

// Variables returns the variables that a file needs, in its order.
func Variables(cfg *Config, text string) (names []string) {
	seen := map[string]bool{}
	_, _ = pipeline.Parse(cfg.Name+".yaml", []byte(text), func(name string) (string, bool) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
		return cfg.lookup(name)
	})
	return names
}
