package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// batching configures worlds whose at-least-once delivery handles batches, one at a time.
type batching struct {
	Every time.Duration // between two checkpoints; 0: one after each batch
}

// batches is the delivery of a process that handles batches. They take effect in the target store,
// event by event, so that a batch that fails has had an effect.
func (p *process) batches() sluice.Delivery {
	return sluice.Batches(atLeastOnceStore{checkpoints{store{p}}, deadLetters{p}}, p.handleBatch, &sluice.BatchesConfig{CheckpointEvery: p.stream.Batches.Every})
}

func (p *process) handleBatch(ctx context.Context, b sluice.Batch) error {
	p.worksUnder(b.Group.Topic, b.Partition, b.Epoch)
	p.handed(b)
	if !b.Redriven {
		p.inTurn(b)
		p.mayWrite(b.Events[0], "")
	}
	for i, e := range b.Events {
		p.takeTurn(ctx, e.Partition, 1)
		err := p.upload(ctx, e)
		p.hadTurn(b.Redriven, e)
		if err != nil {
			if p.w.cfg.WholeBatch {
				return err
			}
			return &driver.EventError{Index: i, Err: err}
		}
	}
	return nil
}

// upload writes an event, or fails as its body demands.
func (p *process) upload(ctx context.Context, e *sluice.Event) error {
	records, err := p.records(ctx, e)
	if err != nil {
		return err
	}
	if kindOf(e) == "poison" && p.w.troubled() {
		p.w.count("poisoned")
		p.w.kill(p)
		return errors.New("dead")
	}
	for _, record := range records {
		if err := (sink{p}).put(ctx, record); err != nil {
			return err
		}
		p.redriven(e)
	}
	return nil
}

// inTurn records a violation if a batch is handled before all events between the checkpoint and it
// are written or are dead letters.
func (p *process) inTurn(b sluice.Batch) {
	w, first := p.w, b.Events[0]
	checkpoint := w.checkpoint(b.Partition)
	dead := map[int64]bool{}
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{Partition: b.Partition})
	w.mu.Lock()
	defer w.mu.Unlock()
	life := lifeOf(first)
	if life != w.life || w.lives[checkpoint.Incarnation] != life {
		return
	}
	// An owner learns that an operator has set the checkpoint back when it stores its own. The
	// operator's epoch has no owner. It is the owner's number where a failover has lost the owner's
	// claim.
	if b.Epoch < checkpoint.Epoch || b.Epoch == checkpoint.Epoch && checkpoint.Owner == "" {
		return
	}
	for i := range list {
		if id := w.letterID(&list[i]); id.life == life {
			dead[id.sequence] = true
		}
	}
	for n := max(checkpoint.Position.Sequence+1, 0); n < first.Sequence; n++ {
		id := eventID{w.group.Topic, b.Partition, n, life}
		if w.written[written{b.Partition, n, life}] == 0 && !dead[n] && !w.lost[id] && !w.isEmpty(id) {
			w.stale = append(w.stale, fmt.Sprintf("partition %s: event %d was handled before event %d was done", b.Partition, first.Sequence, n))
			return
		}
	}
}

// DrawBatches configures a world whose processes handle batches from a seed.
func DrawBatches(seed uint64) Config {
	c := DrawStream(seed)
	r := rand.New(rand.NewPCG(seed, 3))
	c.Poison = r.IntN(3) == 0
	c.Stream = &streaming{Batches: &batching{Every: []time.Duration{0, 0, 777 * time.Millisecond, 7 * time.Second}[r.IntN(4)]}}
	return c
}
