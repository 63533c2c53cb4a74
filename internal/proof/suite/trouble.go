package suite

import "sync"

// Trouble is what a suite does to the store of a driver that is tested: it refuses records of some
// keys, breaks, or does not answer. It is safe for concurrent use. The zero value does nothing.
type Trouble[K comparable] struct {
	mu      sync.Mutex
	blocked chan struct{} // closed, or nil: it answers
	broken  bool
	refused map[K]bool
}

// Block makes Begin wait until release is called.
func (t *Trouble[K]) Block() (release func()) {
	blocked := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocked = blocked
	return func() { close(blocked) }
}

// Break makes Begin report that the store is broken, until repair is called.
func (t *Trouble[K]) Break() (repair func()) {
	t.setBroken(true)
	return func() { t.setBroken(false) }
}

func (t *Trouble[K]) setBroken(broken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = broken
}

// Refuse makes Refuses true for a key.
func (t *Trouble[K]) Refuse(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil {
		t.refused = map[K]bool{}
	}
	t.refused[key] = true
}

// Begin begins a request. It waits while the store does not answer, and reports whether the store
// is broken then.
func (t *Trouble[K]) Begin() (broken bool) {
	t.mu.Lock()
	blocked := t.blocked
	t.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// Refuses reports whether the store refuses a key.
func (t *Trouble[K]) Refuses(key K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[key]
}
