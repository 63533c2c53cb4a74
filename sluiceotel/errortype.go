package sluiceotel

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/sluice-go/sluice/driver"
)

// errorTypes are the values of error.type. There are few, so that an error's text never
// makes a series of its own.
var errorTypes = []string{"timeout", "refused", "rejected", "connection", otherError}

// otherError is what the conventions have for an error of no other type.
const otherError = "_OTHER"

// errorType returns the error.type of an error.
func errorType(err error) string {
	var timed interface{ Timeout() bool }
	var operation *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, driver.ErrTimeLimit), errors.As(err, &timed) && timed.Timeout():
		return "timeout"
	case errors.Is(err, driver.ErrRefused):
		return "refused"
	case errors.Is(err, driver.ErrRejected):
		return "rejected"
	case errors.As(err, &operation), errors.As(err, &dns), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection"
	}
	return otherError
}
