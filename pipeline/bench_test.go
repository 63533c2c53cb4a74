package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/pipeline/internal/rollup"
	"github.com/sluice-go/sluice/stamp"
)

// BenchmarkRollup adds events as stages send them: JSON, stamped, of a
// thousand groups.
func BenchmarkRollup(b *testing.B) {
	f, err := ParseFile("p.yaml", []byte(soundStages), environment())
	if err != nil {
		b.Fatal(err)
	}
	m := f.Stages[1].rollup
	kinds := make([]rollup.Function, len(m.stats))
	for i, figure := range m.stats {
		kinds[i] = figure.function
	}
	memory := rollup.New(kinds, m.late, time.Time{})
	row, picked := make([]any, len(m.mapping.columns)), make([]jsonpick.Value, m.mapping.paths)
	now := time.Now().UTC()
	events := make([]sluice.Event, 1000)
	for i := range events {
		events[i] = sluice.Event{
			Enqueued: now, Properties: map[string]any{},
			Body: fmt.Appendf(nil, `{"airport":"A%d","departure":%q,"delay":%d}`, i%100, now.Add(-time.Duration(i%10)*time.Hour).Format(time.RFC3339), i),
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := &events[i%len(events)]
		e.Sequence = int64(i)
		stamp.Stamp{ID: stamp.CausationID{Source: "flights@0123456789abcdef", Partition: "0", Sequence: int64(i)}, Low: -1}.SetTo(e.Properties)
		taken, _, err := m.event(e, row, picked)
		if err != nil {
			b.Fatal(err)
		}
		if so, err := memory.Add(taken); so != rollup.Counted || err != nil {
			b.Fatal(so, err)
		}
		if i%1000 == 999 {
			memory.Changed()
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkFormat maps events with bodies of each format to rows of two columns. plain has no
// source.format at all.
func BenchmarkFormat(b *testing.B) {
	for _, c := range []struct{ name, format, body string }{
		{"plain", "", `{"number":"AA 7","delay":3,"id":"00010203-0405-0607-0809-0a0b0c0d0e0f"}`},
		{"undeclared", "  format: {compression: auto}\n", `{"number":"AA 7","delay":3,"id":"00010203-0405-0607-0809-0a0b0c0d0e0f"}`},
		{"gzip", "  format: {compression: gzip}\n", string(gzipped(`{"number":"AA 7","delay":3,"id":"00010203-0405-0607-0809-0a0b0c0d0e0f"}`))},
		{"avro", "  format: {encoding: avro, schema: testdata/flight.avsc}\n", avroFlight("AA 7", 3)},
		{"protobuf", "  format: {encoding: protobuf, schema: testdata/flight.proto, message: pkg.Flight}\n", protoFlight("AA 7", 3)},
	} {
		b.Run(c.name, func(b *testing.B) {
			file := replaced(b, sound, []string{"  start: earliest\n", c.format, "      delay: {", "      number: body.number\n      delay: {"})
			p, err := Parse("p.yaml", []byte(file), environment())
			if err != nil {
				b.Fatal(err)
			}
			h := decoded(p, func(_ context.Context, _ int, batch sluice.Batch) error {
				_, err := targetOf[*tableTarget](p).mapping.rows(batch.Events, nil)
				return err
			})
			events := make([]*sluice.Event, 1000)
			for i := range events {
				events[i] = &sluice.Event{Body: []byte(c.body)}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := h(b.Context(), 0, sluice.Batch{Events: events}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(events))/b.Elapsed().Seconds(), "events/s")
		})
	}
}
