package servicebus

import "errors"

// States that callers can ask for with [errors.Is].
var (
	// ErrLockLost: the lock of a message has expired, or the message was settled already.
	ErrLockLost = errors.New("the lock has expired, or the message is settled already")
	// ErrFull: a queue holds as many bytes as it may.
	ErrFull = errors.New("the queue is full")
	// ErrNotFound: there is no entity of the name, or no message of the number.
	ErrNotFound = errors.New("no such entity")
	// ErrExists: there is an entity of the name already.
	ErrExists = errors.New("an entity of the name exists already")
	// ErrDeleted: the entity was deleted while it was in use.
	ErrDeleted = errors.New("the entity was deleted")
	// ErrSendDisabled and ErrReceiveDisabled: the entity's status forbids it.
	ErrSendDisabled    = errors.New("sending is disabled")
	ErrReceiveDisabled = errors.New("receiving is disabled")
	// ErrSessionNeeded: the queue has sessions, and the message or the receiver names none.
	ErrSessionNeeded = errors.New("the entity requires sessions")
	// ErrNoSessions: the queue has none.
	ErrNoSessions = errors.New("the entity has no sessions")
	// ErrSessionLocked: another receiver has the session.
	ErrSessionLocked = errors.New("the session is locked by another receiver")
	// ErrSessionLost: the lock of the session has expired, or was given back.
	ErrSessionLost = errors.New("the lock of the session has expired")
)
