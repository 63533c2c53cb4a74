package partition

import (
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// eventOverhead is about what an event takes in memory in bytes besides what [driver.Event.Size]
// counts.
const eventOverhead = 512

// ChargeOf returns what is charged for events with so many bytes.
func ChargeOf(events int, bytes int64) int64 { return int64(events)*eventOverhead + bytes }

// openMemory begins to charge what the partition holds.
func (a *Assignment) openMemory() {
	a.Memory = a.Settings.Memory.Open(driver.ReadBytes, func() func() { return a.Delivery.Doing(activityMemory, 0, 0).Done })
}

// memoryState says that reading waits for memory, empty if it does not.
func (a *Assignment) memoryState() string {
	open := a.reading.Load()
	if open == nil || !open.buffer.refused.Load() {
		return ""
	}
	used, limit := a.Memory.Shared()
	return fmt.Sprintf("reading waits for memory: %d of %d MiB shared by all partitions are in use", used>>20, limit>>20)
}
