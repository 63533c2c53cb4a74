package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// removeWithin bounds the removal of one thing.
const removeWithin = 30 * time.Second

// Ledger lists what a run has made, or may have made, and how to remove it. It is safe for
// concurrent use.
type Ledger struct {
	mu   sync.Mutex
	made []made
}

type made struct {
	what   string
	remove func(context.Context) error
}

// Add records a thing before it is made. The function removes it, and returns nil if it does not
// exist.
func (l *Ledger) Add(what string, remove func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made = append(l.made, made{what, remove})
}

// Remove removes everything, the newest first, also if ctx has ended. The error names what is left.
func (l *Ledger) Remove(ctx context.Context) error {
	l.mu.Lock()
	list := l.made
	l.made = nil
	l.mu.Unlock()
	var left []error
	for i := len(list) - 1; i >= 0; i-- {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
		if err := list[i].remove(limited); err != nil {
			left = append(left, fmt.Errorf("%s could not be removed: %s", list[i].what, oneLine(err)))
		}
		cancel()
	}
	return errors.Join(left...)
}
