package bus

import "errors"

// States that callers can ask for with [errors.Is].
var (
	// ErrLockLost: the lock of a message has expired, or the message was settled already.
	ErrLockLost = errors.New("the lock has expired, or the message is settled already")
	// ErrFull: a queue holds as many bytes as it may.
	ErrFull = errors.New("the queue is full")
	// ErrNotFound: there is no entity of the name.
	ErrNotFound = errors.New("no such entity")
	// ErrExists: there is an entity of the name already.
	ErrExists = errors.New("an entity of the name exists already")
	// ErrDeleted: the entity was deleted while it was in use.
	ErrDeleted = errors.New("the entity was deleted")
)
