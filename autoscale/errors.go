package autoscale

import "errors"

var (
	// ErrConflict: another process has saved the resource's state since it was
	// loaded. Load it again and repeat the change.
	ErrConflict = errors.New("the state was saved by another process in the meantime")
	// ErrLockLost: the lock time of a message has passed; another receiver may have
	// it now.
	ErrLockLost = errors.New("the lock of the message has expired")
)
