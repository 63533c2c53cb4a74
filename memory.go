package sluice

import (
	"sync"

	"github.com/sluice-go/sluice/internal/memory"
)

// Memory is a budget of bytes that consumers share: for events that drivers receive, that are read
// ahead, in batches and in flight, and for bodies that package pipeline decodes. It is charged
// before memory is allocated. Where it is used up, partitions read ahead less, down to about 1 MiB
// each, and large bodies are decoded one after the other. No event becomes a dead letter for it.
type Memory struct{ budget *memory.Budget }

// NewMemory returns a budget of a number of bytes, which must be positive. Half of what the process
// may use is a good choice: garbage takes as much again until it is collected.
func NewMemory(bytes int64) *Memory { return &Memory{memory.New(bytes)} }

// ProcessMemory returns the budget of consumers that state none. It is half of the memory that the
// process may use, at least 16 MiB: of GOMEMLIMIT, or of nine tenths of the smallest limit of its
// control groups if that is less. Without both it is 1 GiB.
var ProcessMemory = sync.OnceValue(func() *Memory { return &Memory{memory.Process()} })

// Bytes returns the size of the budget.
func (m *Memory) Bytes() int64 { return m.budget.Limit() }

// Charged returns how many bytes are charged, beside about 1 MiB that each partition may have
// without asking, and how many may be.
func (m *Memory) Charged() (used, limit int64) { return m.budget.Shared() }
