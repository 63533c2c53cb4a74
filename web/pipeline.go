package web

import (
	"context"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
)

// Pipeline is one consumer group that the dashboard shows.
type Pipeline struct {
	Name   string // as people know it; unique on a dashboard
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
	// Pausable is what that consumer reads through; nil if partitions can't be
	// paused.
	Pausable *PausableSource
	// Watched says that the program looks for warnings itself and calls
	// [Dashboard.Warn]; else the dashboard does, every half minute.
	Watched bool
	// Redrive runs retries on partitions that nobody owns, as
	// [sluice.Consumer.Redrive] does; nil leaves them until there is an owner.
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

// CheckpointReader is the side of a [sluice.TxStore] or [sluice.CheckpointStore]
// that reads without claiming.
type CheckpointReader interface {
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
}
