package web

import (
	"context"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
)

// Pipeline is one consumer group that the dashboard shows.
type Pipeline struct {
	Name   string // shown to users; unique on a dashboard
	Group  sluice.Group
	Source driver.Source
	Leases driver.LeaseStore

	// Checkpoints is nil for a pipeline that keeps none.
	Checkpoints CheckpointReader
	// DeadLetters is nil for a pipeline that keeps none.
	DeadLetters driver.DeadLetterStore
	// Meter is what the consumer in this process has as its observer; nil if
	// there is no consumer here: then there are no charts.
	Meter *Meter
	// Pausable is the source that the consumer in this process reads; nil if
	// partitions can't be paused.
	Pausable *PausableSource
	// Watched reports that the program looks for warnings itself and calls
	// [Dashboard.Warn]. Otherwise the dashboard looks every half minute.
	Watched bool
	// Redrive redrives dead letters of partitions that have no owner, as
	// [sluice.Consumer.Redrive] does. If it is nil, they wait until there is one.
	Redrive func(ctx context.Context) (applied, failed int, err error)
	// Audit compares what the log holds with what the pipeline has left behind,
	// as [audit.Run] does, and reports how many events it has read so far; nil for
	// a pipeline that can't be audited. One runs at a time, at the latest until
	// [Dashboard.Run] ends.
	Audit func(ctx context.Context, progress func(events int64)) (*audit.Report, error)
	// Unaudited is a sentence that the page shows where there is no Audit: why,
	// and what to do instead. Without one there is no such page.
	Unaudited string
}

// CheckpointReader is the part of a [driver.TxStore] or [driver.CheckpointStore]
// that reads without claiming.
type CheckpointReader interface {
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}
