package autoscale

import "errors"

var (
	// ErrConflict: a resource's memory has been saved by somebody else since it
	// was loaded. Load it again.
	ErrConflict = errors.New("saved by another process in the meantime")
	// ErrLockLost: a message's lock time is over, and others may have received it.
	ErrLockLost = errors.New("the message's lock is lost")
)
