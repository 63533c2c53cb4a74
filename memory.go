package sluice

import (
	"fmt"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// Memory is a budget of bytes that consumers share: for events that drivers receive, that are read ahead,
// in batches and in flight, and for bodies that package pipeline decodes. It is charged before memory is
// allocated. Where it is used up, partitions read ahead less, down to about 1 MiB each, and large bodies
// are decoded one after the other. No event becomes a dead letter for it.
type Memory struct{ budget *memory.Budget }

// NewMemory returns a budget of a number of bytes, which must be positive. Half of what the process may
// use is a good choice: garbage takes as much again until it is collected.
func NewMemory(bytes int64) *Memory { return &Memory{memory.New(bytes)} }

// ProcessMemory returns the budget of consumers that state none. It is half of the memory that the
// process may use, at least 16 MiB: of GOMEMLIMIT, or of nine tenths of the smallest limit of its
// control groups if that is less. Without both it is 1 GiB.
var ProcessMemory = sync.OnceValue(func() *Memory { return &Memory{memory.Process()} })

// Bytes returns the size of the budget.
func (m *Memory) Bytes() int64 { return m.budget.Limit() }

// Charged returns how many bytes are charged, beside about 1 MiB that each partition may have without
// asking, and how many may be.
func (m *Memory) Charged() (used, limit int64) { return m.budget.Shared() }

// eventOverhead is about what an event takes in memory in bytes besides what [Event.Size] counts.
const eventOverhead = 512

// chargeOf returns what is charged for events with so many bytes.
func chargeOf(events int, bytes int64) int64 { return int64(events)*eventOverhead + bytes }

// openMemory begins to charge what the partition holds.
func (a *assignment) openMemory() {
	a.memory = a.c.cfg.Memory.budget.Open(driver.ReadBytes, func() func() { return a.delivery.doing(activityMemory, 0, 0).done })
}

// memoryState says that reading waits for memory, empty if it does not.
func (a *assignment) memoryState() string {
	open := a.reading.Load()
	if open == nil || !open.buffer.refused.Load() {
		return ""
	}
	used, limit := a.memory.Shared()
	return fmt.Sprintf("reading waits for memory: %d of %d MiB shared by all partitions are in use", used>>20, limit>>20)
}
