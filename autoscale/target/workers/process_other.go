//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package workers

import (
	"errors"
	"fmt"
)

// process is a worker's process, which this operating system does not support.
type process struct {
	id    int
	ended chan struct{}
}

func launch(*slot) (*process, error) {
	return nil, fmt.Errorf("workers on this operating system: %w", errors.ErrUnsupported)
}

func find(string, string) *process { return nil }

func (p *process) interrupt()   {}
func (p *process) kill()        {}
func (p *process) cause() error { return nil }
