package servicebus

import (
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// compactFrom is how many bytes the journal may have beside those that it needs, before it is compacted.
const compactFrom = 64 << 20

// compactChunk is about how much of a queue is written again at once.
const compactChunk = 1 << 20

// journal writes down what becomes of entities and messages. nil is none: everything is in memory only.
type journal struct {
	log    *disklog.Log
	spare  int64 // compactFrom, but in tests
	failed func(error)

	mu         sync.Mutex
	generation uint64 // of the entries that are noted as a whole now
	written    int64  // bytes since the last compaction
	limit      int64  // of those
	latest     *disklog.Pending
	kick       chan struct{} // there is something to do
	stop       chan struct{}
	done       sync.WaitGroup
	closed     func() error
}

// begin gives notes their place in the journal, and empties them.
func (j *journal) begin(n *notes) Receipt {
	entries := n.entries
	n.entries = nil
	if j == nil || n.empty() {
		n.records = n.records[:0]
		return Receipt{}
	}
	n.close()
	records := n.records
	n.records = nil // the log keeps them until they are written
	size := int64(0)
	for i := range records {
		size += int64(len(records[i].Key) + len(records[i].Payload))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	pending, err := j.log.Begin(records)
	if err != nil {
		return Receipt{err: err}
	}
	for _, e := range entries {
		e.generation = j.generation
	}
	if j.written += size + 64*int64(len(records)); j.written > j.limit {
		j.wake()
	}
	return Receipt{journal: j, pending: pending}
}

func (j *journal) wake() {
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

// writeSoon has what was begun up to now written, although nobody waits for it.
func (j *journal) writeSoon(p *disklog.Pending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.latest = p
	j.wake()
}

// run writes what nobody waits for, and compacts the journal, until it is stopped.
func (j *journal) run(compact func() error) {
	defer j.done.Done()
	for {
		select {
		case <-j.kick:
		case <-j.stop:
			return
		}
		if err := j.flush(); err != nil {
			j.failed(err)
		}
		j.mu.Lock()
		due := j.written > j.limit
		j.mu.Unlock()
		if !due {
			continue
		}
		if err := compact(); err != nil {
			j.failed(err)
			j.mu.Lock()
			j.limit += j.spare // not again at once
			j.mu.Unlock()
		}
	}
}

func (j *journal) flush() error {
	j.mu.Lock()
	p := j.latest
	j.latest = nil
	j.mu.Unlock()
	if p == nil {
		return nil
	}
	_, err := p.Wait()
	return err
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.closed()
}

// finish is what closed does, once.
func (j *journal) finish() error {
	close(j.stop)
	j.done.Wait()
	err := j.flush()
	if closed := j.log.Close(); err == nil {
		err = closed
	}
	return err
}

// compact writes everything that is left again, and removes what lies before.
func (b *Broker) compact() error {
	j := b.journal
	b.mu.Lock() // so that all entities that were defined before the mark are among those that follow
	j.mu.Lock()
	j.generation++
	generation := j.generation
	mark, err := j.log.Begin([]disklog.Message{{Key: string(rune(recordMark))}})
	begun := j.written
	j.mu.Unlock()
	queues, topics := b.all()
	b.mu.Unlock()
	if err != nil {
		return err
	}
	from, err := mark.Wait()
	if err != nil {
		return err
	}
	kept := int64(0)
	for _, t := range topics {
		r := t.rewrite()
		if err := r.Wait(); err != nil {
			return err
		}
	}
	for _, q := range queues {
		n, err := q.rewrite(generation)
		if err != nil {
			return err
		}
		kept += n
	}
	if err := j.log.Trim(from); err != nil {
		return err
	}
	j.mu.Lock()
	j.written -= begun
	j.limit = max(j.spare, kept) + kept
	j.mu.Unlock()
	return nil
}

// rewrite notes a queue, with all that is older than a generation, again. It returns how many bytes that is.
func (q *Queue) rewrite(generation uint64) (size int64, err error) {
	q.mu.Lock()
	q.catchUp()
	if !q.deleted {
		if !q.held { // the topic's own definition is that of the topic
			q.notes.defined(q.definition())
		}
		for id, x := range q.messages.sessions {
			if x.state != nil {
				q.notes.sessionState(q.id, id, x.state)
				size += int64(len(x.state))
			}
		}
	}
	if err := q.leave().Wait(); err != nil {
		return size, err
	}
	for _, s := range []*Store{&q.messages, &q.dead} { // in this order: that is how messages move
		for from, more := int64(0), true; more; {
			var n int64
			q.mu.Lock()
			n, from, more = s.note(from, generation)
			size += n
			if err := q.leave().Wait(); err != nil {
				return size, err
			}
		}
	}
	return size, nil
}

// note notes entries of an older generation from a sequence number on, about as many as make a chunk. It returns their size, and where to go on.
func (s *Store) note(from int64, generation uint64) (size, next int64, more bool) {
	if s.q.deleted {
		return 0, 0, false
	}
	for _, e := range s.entries[s.find(from):] {
		if size >= compactChunk {
			return size, e.Sequence, true
		}
		if !e.gone && e.generation < generation {
			s.q.notes.whole(s.q.id, e)
			size += int64(len(e.Payload)) + 64
		}
	}
	return size, 0, false
}
