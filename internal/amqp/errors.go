package amqp

import (
	"errors"
	"fmt"
)

// Error conditions of the standard (sections 2.8.15 to 2.8.18) and those that Azure adds.
const (
	CondInternal           Symbol = "amqp:internal-error"
	CondNotFound           Symbol = "amqp:not-found"
	CondUnauthorized       Symbol = "amqp:unauthorized-access"
	CondDecode             Symbol = "amqp:decode-error"
	CondResourceLimit      Symbol = "amqp:resource-limit-exceeded"
	CondNotAllowed         Symbol = "amqp:not-allowed"
	CondInvalidField       Symbol = "amqp:invalid-field"
	CondNotImplemented     Symbol = "amqp:not-implemented"
	CondFrameSizeTooSmall  Symbol = "amqp:frame-size-too-small"
	CondConnectionForced   Symbol = "amqp:connection:forced"
	CondFraming            Symbol = "amqp:connection:framing-error"
	CondErrantLink         Symbol = "amqp:session:errant-link"
	CondHandleInUse        Symbol = "amqp:session:handle-in-use"
	CondUnattachedHandle   Symbol = "amqp:session:unattached-handle"
	CondDetachForced       Symbol = "amqp:link:detach-forced"
	CondTransferLimit      Symbol = "amqp:link:transfer-limit-exceeded"
	CondMessageSize        Symbol = "amqp:link:message-size-exceeded"
	CondStolen             Symbol = "amqp:link:stolen"
	CondArgument           Symbol = "com.microsoft:argument-error"
	CondServerBusy         Symbol = "com.microsoft:server-busy"
	CondArgumentOutOfRange Symbol = "com.microsoft:argument-out-of-range"
)

// Error is an AMQP error as sent on the wire (section 2.8.14): in a close, end or detach, or in a
// rejected outcome.
type Error struct {
	Condition   Symbol
	Description string
}

func (e *Error) Error() string { return string(e.Condition) + ": " + e.Description }

// Errorf makes an [Error].
func Errorf(condition Symbol, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// ErrLinkClosed is what a link's methods return once either side has detached the link, or its
// session or connection has ended.
var ErrLinkClosed = errors.New("amqp: link closed")

// wireError turns any error into one that can be sent to the peer. The text of errors that aren't
// an [*Error] is not sent.
func wireError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Condition: CondInternal, Description: "the server failed to process the request"}
}
