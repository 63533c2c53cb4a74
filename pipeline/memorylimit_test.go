package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct{ keys, format, wrong string }{
		{"memory_limit: 400MiB", "", ""},
		{"memory_limit: 48MiB", "  format: {compression: gzip}\n", ""},
		{"memory_limit: 400", "", "p.yaml:10:1: memory_limit: \"400\": write a number of bytes from 16777216 to 1099511627776"},
		{"memory_limit: 400 megs", "", "p.yaml:10:1: memory_limit: "},
		{"memory_limit: 40MiB", "  format: {compression: gzip}\n", "p.yaml:11:1: memory_limit: one event may need 24 MiB, three times source.format.max_size and once source.claim_check.max_size: write at least 48MiB, or lower them"},
	} {
		p, err := Parse("p.yaml", []byte(edit(t, "batch: 1000", c.keys, "  start: earliest\n", "  start: earliest\n"+c.format)), environment())
		switch {
		case c.wrong == "" && (err != nil || p.memoryLimit == 0):
			t.Errorf("%s: %v", c.keys, err)
		case c.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), c.wrong)):
			t.Errorf("%s: %v\nwant %s", c.keys, err, c.wrong)
		}
	}
}

// largest is a compressed body that has max_size bytes when it is decompressed.
var largest = gzipped(`{"delay":7,"payload":"` + strings.Repeat("x", 8<<20-24) + `"}`)

// TestDecodedWhatMemoryHas: a batch whose bodies there is no memory for is decoded in parts, and a
// record waits while others of its partition have the memory.
func TestDecodedWhatMemoryHas(t *testing.T) {
	p, err := Parse("p.yaml", []byte(edit(t, "  start: earliest\n", "  start: earliest\n  format: {compression: gzip}\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	budget := memory.New(64 << 20) // 24 MiB are kept for a quarter, 24 MiB for one event
	budget.Reserve(p.body.mostMemory())
	partition := budget.Open(1<<20, nil)
	ctx := memory.NewContext(t.Context(), partition)
	events := make([]*sluice.Event, 10)
	for i := range events {
		events[i] = &sluice.Event{Body: largest}
	}
	var parts []int
	handler := decoded(p, func(_ context.Context, _ int, b sluice.Batch) error {
		parts = append(parts, len(b.Events))
		if used, limit := budget.Shared(); used > limit || used < int64(len(b.Events))*8<<20 {
			t.Errorf("%d bytes of %d are charged for %d events", used, limit, len(b.Events))
		}
		return nil
	})
	if err := handler(ctx, 0, sluice.Batch{Events: events}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(parts); got != "[2 2 2 2 2]" && got != "[3 3 3 1]" {
		t.Errorf("the batch was handled in parts of %v events", parts)
	}
	if used, _ := budget.Shared(); used != 0 {
		t.Errorf("%d bytes are charged at the end", used)
	}

	records := decodedRecords(p, func(_ context.Context, e *sluice.Event) ([]int, error) { return []int{len(e.Body)}, nil })
	var made int
	for ; err == nil && made < 10; made++ {
		_, err = records(ctx, events[made])
	}
	if made == 1 || !errors.Is(err, memory.ErrBusy) {
		t.Errorf("after %d events: %v", made, err)
	}
	partition.Close()
	if used, _ := budget.Shared(); used != 0 {
		t.Errorf("%d bytes are charged when the partition is closed", used)
	}
}

// TestFilterWhatMemoryHas: a body that a filter decodes is charged. Where there is no memory for it
// the filter does not wait: the delivery decides.
func TestFilterWhatMemoryHas(t *testing.T) {
	p, err := Parse("p.yaml", []byte(edit(t, "partitions: all\n", "partitions: all\nonly: {body.delay: 8}\n", "  start: earliest\n", "  start: earliest\n  format: {compression: gzip}\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		budget  int64
		handled bool
	}{{64 << 20, false}, {8 << 20, true}} {
		budget := memory.New(c.budget)
		if got := p.filterWithin(budget)(&sluice.Event{Body: largest}); got != c.handled {
			t.Errorf("%d MiB: the event is handled: %v", c.budget>>20, got)
		}
		if used, _ := budget.Shared(); used != 0 {
			t.Errorf("%d bytes are charged at the end", used)
		}
	}
}

// TestMaximumEventsOfPartitions: eight partitions whose bodies decompress to 1.3 GiB, each to the
// largest size, go through a budget of 96 MiB; none becomes a dead letter, in each delivery.
func TestMaximumEventsOfPartitions(t *testing.T) {
	need.RealTime(t)
	const partitions, each, limit = 8, 20, 96 << 20
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	const format = "  start: earliest\n  format: {compression: gzip}\n"
	columns := sound[strings.Index(sound, "  insert:"):]
	for name, edits := range map[string][]string{
		"transactional": {"  start: earliest\n", format},
		"at least once": {"  start: earliest\n", format, "database: ${DATABASE_URL}", "leases: {sql: \"${DATABASE_URL}\"}", columns, "  http:\n    url: " + target.URL + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := sqliteFile(t)
			p, err := Parse("p.yaml", []byte(edit(t, edits...)), environment("DATABASE_URL="+address))
			if err != nil {
				t.Fatal(err)
			}
			p.config.Memory = sluice.NewMemory(limit)
			parts, err := p.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer parts.Close(context.Background())
			hub := sluicetest.NewHub(p.Group, partitions)
			for i := range partitions * each {
				hub.Append(fmt.Sprint(i%partitions), &sluice.Event{Body: largest})
			}
			var done, peak atomic.Int64
			all := make(chan struct{})
			c, err := parts.Consumer(t.Context(), &Options{Source: hub, Observer: driver.ObserverFunc(func(o driver.Observation) {
				used, _ := p.config.Memory.Charged()
				peak.Store(max(peak.Load(), used))
				if o.Kind == driver.KindCommitted && o.Events > 0 && done.Add(int64(o.Events)) == partitions*each {
					close(all)
				}
				if o.Kind == driver.KindFailed || o.Kind == driver.KindParked {
					t.Errorf("%v: %v", o.Kind, o.Err)
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			select {
			case <-all:
			case <-time.After(2 * time.Minute):
				t.Errorf("%d of %d events are done", done.Load(), partitions*each)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if used, _ := p.config.Memory.Charged(); used != 0 || peak.Load() > limit {
				t.Errorf("%d bytes were charged at most, %d at the end", peak.Load(), used)
			}
		})
	}
}
