// Package checkpoint lists and moves the checkpoints of a consumer group for an operator.
package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Store is the part of a [driver.TxStore] that is needed here.
type Store interface {
	Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error)
	Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error)
}

// Table is the checkpoints of one consumer group and what goes with them.
type Table struct {
	Noun  string // what the log is called: hub or topic
	Group sluice.Group
	// SDKGroup has the names under which the Azure SDKs' processors keep their checkpoints of the
	// group.
	SDKGroup    sluice.Group
	Source      driver.Source // nil: only what the stores know is listed
	Leases      driver.LeaseStore
	Checkpoints Store
	DeadLetters driver.DeadLetterStore
	// AtLeastOnce says that the delivery is [sluice.AtLeastOnce], which passes over events that are
	// dead letters, InBatches that it is [sluice.Batches], which handles them again and leaves
	// their dead letters as they are.
	AtLeastOnce, InBatches bool
	// ManyReaders says that a reader of the log ends no other reader's link.
	ManyReaders bool
	// DryRun says that nothing will be set: what is planned leaves live owners alone.
	DryRun bool
}

// Row is the state of one partition.
type Row struct {
	Partition   string
	Begun       bool // there is a checkpoint with a position
	Position    sluice.Position
	Recreated   bool          // the checkpoint belongs to an earlier incarnation of the hub
	First       int64         // sequence number of the hub's oldest event; not set if Lag is -1
	End         int64         // sequence number of the hub's newest event; not set if Lag is -1
	Lag         int64         // events in the hub after the position; -1 if not known
	Owner       string        // of the live lease; empty if the partition has no owner
	LeaseLeft   time.Duration // until it expires
	Epoch       int64         // of the checkpoint or the lease, the higher
	DeadLetters int           // that are dead or wait for a retry
	Updated     time.Time     // the checkpoint
}

// List returns a row for each partition, in the hub's order. If only the hub cannot be reached, it
// returns what the database knows, and the hub's error separately.
func (t *Table) List(ctx context.Context) (rows []Row, hub, err error) {
	progress, err := t.Checkpoints.Read(ctx, t.Group)
	if err != nil {
		return nil, nil, err
	}
	leases, err := t.Leases.List(ctx, t.Group)
	if err != nil {
		return nil, nil, err
	}
	deadLetters, err := t.DeadLetters.Count(ctx, t.Group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead, sluice.StatusRetry}})
	if err != nil {
		return nil, nil, err
	}
	var topic driver.Topic
	if t.Source != nil {
		topic, hub = t.Source.Describe(ctx)
	}
	known := t.Source != nil && hub == nil
	at := make(map[string]int)
	row := func(partition string) *Row {
		i, ok := at[partition]
		if !ok {
			i = len(rows)
			at[partition] = i
			rows = append(rows, Row{Partition: partition, Lag: -1})
		}
		return &rows[i]
	}
	for _, p := range topic.Partitions {
		row(p)
	}
	for _, p := range progress {
		r := row(p.Partition)
		r.Begun = p.Position != driver.Unset
		r.Position, r.Epoch, r.Updated = p.Position, p.Epoch, p.Updated
		r.Recreated = known && p.Incarnation != topic.Incarnation
	}
	for _, l := range leases {
		if l.Member() {
			continue
		}
		r := row(l.Partition)
		r.Epoch = max(r.Epoch, l.Epoch)
		if l.Live() {
			r.Owner, r.LeaseLeft = l.Owner, l.Remaining
		}
	}
	for _, c := range deadLetters {
		row(c.Partition).DeadLetters += c.Count
	}
	for i := range rows {
		if hub == nil && slices.Contains(topic.Partitions, rows[i].Partition) {
			hub = t.measure(ctx, &rows[i])
		}
	}
	return rows, hub, nil
}

// measure sets the lag of a row. Without a position, and with one of an earlier incarnation, the
// lag is all that the hub holds.
func (t *Table) measure(ctx context.Context, r *Row) error {
	b, err := t.Source.Bounds(ctx, r.Partition)
	if err != nil {
		return fmt.Errorf("end of partition %s: %w", r.Partition, err)
	}
	from := driver.Origin
	if r.Begun && !r.Recreated {
		from = r.Position
	}
	r.First, r.End, r.Lag = b.First, b.Last.Sequence, b.Lag(from)
	return nil
}
