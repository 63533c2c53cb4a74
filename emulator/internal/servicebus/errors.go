package servicebus

import "errors"

// Errors of this package, to be checked with [errors.Is].
var (
	// ErrLockLost: the lock of the message has expired, or the message is settled
	// already.
	ErrLockLost = errors.New("the lock has expired, or the message is settled already")
	// ErrFull: the queue has no room for the messages.
	ErrFull = errors.New("the queue is full")
	// ErrNotFound: there is no entity of that name, or no message of that sequence
	// number.
	ErrNotFound = errors.New("no such entity")
	// ErrExists: there is an entity of that name already.
	ErrExists = errors.New("an entity of that name exists already")
	// ErrDeleted: the entity has been deleted.
	ErrDeleted = errors.New("the entity was deleted")
	// ErrSendDisabled and ErrReceiveDisabled: the entity's status forbids the
	// operation.
	ErrSendDisabled    = errors.New("sending is disabled")
	ErrReceiveDisabled = errors.New("receiving is disabled")
	// ErrSessionNeeded: the queue requires sessions, and the message or the receiver
	// names none.
	ErrSessionNeeded = errors.New("the entity requires sessions")
	// ErrNoSessions: the queue doesn't have sessions.
	ErrNoSessions = errors.New("the entity has no sessions")
	// ErrSessionLocked: another receiver has locked the session.
	ErrSessionLocked = errors.New("the session is locked by another receiver")
	// ErrSessionLost: the lock of the session has expired, or was released.
	ErrSessionLost = errors.New("the lock of the session has expired")
)
