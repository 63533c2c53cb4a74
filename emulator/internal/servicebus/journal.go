package servicebus

import (
	"sync"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
)

// compactSlack is how many bytes beyond those that it needs the journal may have before
// it is compacted.
const compactSlack = 64 << 20

// compactChunk is about how many bytes of a queue compaction writes at once.
const compactChunk = 1 << 20

// journal records the changes to entities and messages. A nil journal records nothing:
// everything is in memory only.
type journal struct {
	log     *disklog.Log
	slack   int64 // compactSlack, except in tests
	onError func(error)

	mu         sync.Mutex
	generation uint64           // of the messages that are written now
	written    int64            // bytes since the last compaction
	limit      int64            // of written: compaction is due above it
	latest     *disklog.Pending // to be flushed by run
	wakeup     chan struct{}    // run has something to do
	stop       chan struct{}
	done       sync.WaitGroup
	closed     func() error
}

// submit gives the changes their place in the journal, and empties them.
func (j *journal) submit(n *changes) Receipt {
	entries := n.entries
	n.entries = nil
	if j == nil || n.empty() {
		n.records = n.records[:0]
		return Receipt{}
	}
	n.closeMessage()
	records := n.records
	n.records = nil // the log keeps the slice until it is written
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
	case j.wakeup <- struct{}{}:
	default:
	}
}

// flushLater has the journal written up to p in the background.
func (j *journal) flushLater(p *disklog.Pending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.latest = p
	j.wake()
}

// run writes in the background and compacts the journal, until j.stop is closed.
func (j *journal) run(compact func() error) {
	defer j.done.Done()
	for {
		select {
		case <-j.wakeup:
		case <-j.stop:
			return
		}
		if err := j.flush(); err != nil {
			j.onError(err)
		}
		j.mu.Lock()
		due := j.written > j.limit
		j.mu.Unlock()
		if !due {
			continue
		}
		if err := compact(); err != nil {
			j.onError(err)
			j.mu.Lock()
			j.limit += j.slack // so that it isn't tried again at once
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

// finish does the work of close, once.
func (j *journal) finish() error {
	close(j.stop)
	j.done.Wait()
	err := j.flush()
	if closed := j.log.Close(); err == nil {
		err = closed
	}
	return err
}

// compact writes all entities and messages again, and removes the older part of the
// journal.
func (b *Broker) compact() error {
	j := b.journal
	b.mu.Lock() // so that all entities that were defined before the mark are written after it
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
		r := t.recordDefinition()
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
	j.limit = max(j.slack, kept) + kept
	j.mu.Unlock()
	return nil
}

// rewrite writes a queue again, with the messages that were last written in an older
// generation. It returns how many bytes that is.
func (q *Queue) rewrite(generation uint64) (size int64, err error) {
	q.mu.Lock()
	q.applyDue()
	if !q.deleted {
		if !q.ofTopic { // it has the topic's definition
			q.changes.define(q.definition())
		}
		for id, x := range q.messages.sessions {
			if x.state != nil {
				q.changes.sessionState(q.id, id, x.state)
				size += int64(len(x.state))
			}
		}
	}
	if err := q.commit().Wait(); err != nil {
		return size, err
	}
	for _, s := range []*Store{&q.messages, &q.deadLetters} { // in this order, because messages move from the first to the second
		for from, more := int64(0), true; more; {
			var n int64
			q.mu.Lock()
			n, from, more = s.rewriteChunk(from, generation)
			size += n
			if err := q.commit().Wait(); err != nil {
				return size, err
			}
		}
	}
	return size, nil
}

// rewriteChunk writes about one chunk of the entries of an older generation, from a
// sequence number on. It returns their size and the sequence number to continue from.
func (s *Store) rewriteChunk(from int64, generation uint64) (size, next int64, more bool) {
	if s.q.deleted {
		return 0, 0, false
	}
	for _, e := range s.entries[s.find(from):] {
		if size >= compactChunk {
			return size, e.Sequence, true
		}
		if !e.gone && e.generation < generation {
			s.q.changes.message(s.q.id, e)
			size += int64(len(e.Payload)) + 64
		}
	}
	return size, 0, false
}
