package partition

import "github.com/sluice-go/sluice/driver"

// HaltedError is the error of a partition that was halted, whatever the delivery is now.
func HaltedError(lease driver.Lease, at driver.Position, why string) error {
	return &driver.HandlerEndedError{Partition: lease.Partition, Why: why, Next: at.Sequence + 1}
}

// claimHalted returns the error of a partition whose checkpoint says that it is halted.
func claimHalted(lease driver.Lease, cp driver.Checkpoint) error {
	if why := cp.Attempt.Halted(); why != "" {
		return HaltedError(lease, cp.Position, why)
	}
	return nil
}
