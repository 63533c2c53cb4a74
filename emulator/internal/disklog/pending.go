package disklog

// Pending is a batch that has a place in the log but may not be written yet. It is written by the
// next call of Append, or of Wait for this or a later batch.
type Pending struct {
	log *Log
	req *appendRequest
}

// Begin queues a batch after all that were begun or appended before, and does not wait until it
// is written. Neither the keys nor the payloads may change until then. Errors: [ErrTooLarge],
// [ErrClosed].
func (l *Log) Begin(msgs []Message) (*Pending, error) {
	r, err := l.newRequest(msgs)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	l.queue = append(l.queue, r)
	return &Pending{log: l, req: r}, nil
}

// Wait returns once the batch is durable, with the sequence number of its first event, or fails
// with [ErrClosed] or a [*WriteError].
func (p *Pending) Wait() (first int64, err error) {
	for {
		select {
		case <-p.req.done:
			return p.req.first, p.req.err
		case p.log.writeLock <- struct{}{}:
			p.log.commit()
			<-p.log.writeLock
		}
	}
}

// Done reports whether Wait would return at once.
func (p *Pending) Done() bool {
	select {
	case <-p.req.done:
		return true
	default:
		return false
	}
}
