package stamp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// relay is an endless log whose events have the properties that an emitter of
// so many partitions sets, or as many under other names.
type relay struct {
	enginetest.EndlessLog
	sources int64
	stamped bool
}

func (s *relay) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := s.EndlessLog.Open(ctx, partition, after, epoch)
	return &relayReader{s, r}, err
}

type relayReader struct {
	*relay
	driver.Reader
}

func (r *relayReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	events, err := r.Reader.Read(ctx, max)
	for _, e := range events {
		n := e.Sequence / r.sources
		id := stamp.CausationID{Source: "flights@0123456789abcdef", Partition: fmt.Sprint(e.Sequence % r.sources), Sequence: n}
		low := driver.Origin.Sequence
		if n > 10_000 {
			low = n/1000*1000 - 5000
		}
		if r.stamped {
			e.Properties = make(map[string]any, 3)
			stamp.Stamp{ID: id, Epoch: 3, Low: low}.SetTo(e.Properties)
		} else {
			e.Properties = map[string]any{"flight-id": id.String(), "flight-epoch": int64(3), "flight-low": low}
		}
	}
	return events, err
}

// sieve is a database that keeps nothing of what was seen, so that only the
// engine is measured.
type sieve struct{ *sluicetest.Store }

func (f sieve) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	step.Dedup = nil
	return f.Store.Commit(ctx, step, fn)
}

// BenchmarkRepeats is what it costs per event to look for repeats: the
// difference between events with stamps and events with as many properties of
// other names.
func BenchmarkRepeats(b *testing.B) {
	for _, c := range []struct {
		name   string
		source driver.Source
	}{
		{"without properties", &enginetest.EndlessLog{Partitions: 1}},
		{"other properties/sources=1", &relay{enginetest.EndlessLog{Partitions: 1}, 1, false}},
		{"stamps/sources=1", &relay{enginetest.EndlessLog{Partitions: 1}, 1, true}},
		{"other properties/sources=32", &relay{enginetest.EndlessLog{Partitions: 1}, 32, false}},
		{"stamps/sources=32", &relay{enginetest.EndlessLog{Partitions: 1}, 32, true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			enginetest.MeasureConsumer(b, c.source, sieve{&sluicetest.Store{}}, 1000)
		})
	}
}
