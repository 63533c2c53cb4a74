package sender

import (
	"sync"
	"sync/atomic"
	"time"
)

// batch is a batch of a run.
type batch struct {
	*packedBatch
	writer    *partitionWriter
	messages  []kept // to pack them again if the batch is too large
	begun     time.Time
	lost      bool // an answer was lost
	duplicate bool // it was sent again after that
}

// kept is what is needed to pack a message again. It is half as large as a
// Message and has no generated id, because what is kept of each message
// costs cache misses and garbage collection.
type kept struct {
	index int64
	key   string
	body  []byte
	whole *Message // nil if the message has no more than a key and a body
}

// keep keeps a message. If its id is to be generated, it has none yet.
func keep(m *Message, index int64) kept {
	k := kept{index: index, key: m.Key, body: m.Body}
	if !m.plain() {
		whole := *m
		k.whole = &whole
	}
	return k
}

// message returns a message that was kept, with its id.
func (r *run) message(k *kept) *Message {
	m := Message{Key: k.key, Body: k.body}
	if k.whole != nil {
		m = *k.whole
	}
	if m.MessageID == "" {
		m.MessageID = r.ids.again(k.index)
	}
	return &m
}

// add adds a message to the batch, and keeps it.
func (b *batch) add(m *Message, k kept) error {
	if err := b.Add(m); err != nil {
		return err
	}
	if b.messages == nil {
		b.messages = b.writer.run.s.spare.get()
	}
	b.messages = append(b.messages, k)
	return nil
}

// indices returns the indices of the batch's messages.
func (b *batch) indices() (list []IndexRange) {
	for i := range b.messages {
		list = extend(list, b.messages[i].index)
	}
	return list
}

// spareMemory is memory for the messages of batches: that of settled batches, or
// new memory for as many messages as the last settled batch had.
type spareMemory struct {
	pool sync.Pool    // of *[]kept
	size atomic.Int64 // messages of the last settled batch
}

func (s *spareMemory) get() []kept {
	if spare, ok := s.pool.Get().(*[]kept); ok {
		return *spare
	}
	return make([]kept, 0, s.size.Load())
}

func (s *spareMemory) put(messages []kept) {
	s.size.Store(int64(len(messages)))
	clear(messages)
	messages = messages[:0]
	s.pool.Put(&messages)
}
