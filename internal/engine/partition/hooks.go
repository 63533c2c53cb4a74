package partition

import "sync"

// hookQueue runs hooks one after the other on a goroutine of its own, which lives
// while there are any. While the queue is full, further calls are dropped: a hook
// that hangs misses what happens meanwhile.
type hookQueue struct {
	mu      sync.Mutex
	waiting []func()
	busy    bool
	closed  bool
	running sync.WaitGroup
}

const hookQueueLen = 64

func (q *hookQueue) push(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= hookQueueLen {
		return
	}
	q.waiting = append(q.waiting, fn)
	if !q.busy {
		q.busy = true
		q.running.Go(q.run)
	}
}

func (q *hookQueue) run() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			q.mu.Unlock()
			return
		}
		fn := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		fn()
	}
}

// close waits for the hooks that are queued. Further calls are dropped.
func (q *hookQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.running.Wait()
}
