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

// checkFloors reports that what partitions may hold without asking is more than the budget.
func (a *Assignment) checkFloors() {
	if floors, short := a.Settings.Memory.Short(); short {
		a.Failed(fmt.Errorf("the partitions of this process may hold %d MiB without asking, more than its memory budget of %d MiB: raise the budget (Config.Memory, memory_limit), or run more processes", floors>>20, a.Settings.Memory.Limit()>>20))
	}
}

// leastRedriven is how many dead letters are looked up at a time where there is no memory for more.
// One that always meets an outage must not keep all others from their turn.
const leastRedriven = 4

// ChargeRedrives charges dead letters before they are looked up, as if each had the largest body
// that is stored. It returns how many may be, up to most, and how many bytes are charged.
func (a *Assignment) ChargeRedrives(most int) (n int, bytes int64) {
	account := a.Memory.RedrivenAccount()
	for n = most; ; n = max(n/2, leastRedriven) {
		bytes = ChargeOf(n, int64(n)*int64(max(0, a.Settings.BodyLimit)))
		if account.TryShared(bytes) {
			return n, bytes
		}
		if n <= leastRedriven {
			account.Take(bytes)
			return n, bytes
		}
	}
}

// ChargeOfRedrives returns what is charged for dead letters.
func ChargeOfRedrives(list []driver.DeadLetter) int64 {
	bytes := int64(0)
	for i := range list {
		bytes += int64(list[i].Event.Size())
	}
	return ChargeOf(len(list), bytes)
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
