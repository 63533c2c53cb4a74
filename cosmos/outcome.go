package cosmos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// ErrClosed is the outcome of documents that are submitted to a closed sink, and of
// those that were not completed when the context of [Sink.Close] ended.
var ErrClosed = errors.New("the sink is closed")

// Error is an error response of the account, or the lack of a response. Its text is
// one line. None of its fields contains a key of the account.
type Error struct {
	Container  string // the account's host/database/container
	Document   string // the document's id, if the error is of one document
	Status     int    // HTTP status; 0: no response
	SubStatus  int    // Cosmos DB's sub-status, 0 if there is none
	ActivityID string // for Azure's support
	Message    string // first line of the account's message
	// Operation is what was to be done with the document. UniqueKeys are the paths of the
	// container's unique keys, if the document was in conflict with another one.
	Operation  Operation
	UniqueKeys []string
	Err        error // why there is no response
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cosmos: %s: ", e.Container)
	if e.Document != "" {
		fmt.Fprintf(&b, "document %.80q: ", e.Document)
	}
	if e.Status == 0 {
		fmt.Fprintf(&b, "no response: %v", e.Err)
	} else {
		fmt.Fprintf(&b, "%d %s", e.Status, statusName(e.Status))
		if e.SubStatus != 0 {
			fmt.Fprintf(&b, ", sub-status %d", e.SubStatus)
		}
		if e.ActivityID != "" {
			fmt.Fprintf(&b, ", activity %s", e.ActivityID)
		}
		if e.Message != "" {
			fmt.Fprintf(&b, " (%s)", e.Message)
		}
	}
	if a := e.advice(); a != "" {
		b.WriteString(": " + a)
	}
	return b.String()
}

// Unwrap returns why there is no response.
func (e *Error) Unwrap() error { return e.Err }

const (
	statusRetryWith        = 449
	statusFailedDependency = 424
)

func statusName(status int) string {
	if status == statusRetryWith {
		return "Retry With"
	}
	return http.StatusText(status)
}

// advice returns what to do, or what the engine does.
func (e *Error) advice() string {
	switch e.Status {
	case 0:
		if transient(e.Err) {
			return "it will be retried"
		}
		if errors.Is(e.Err, errNoToken) {
			return "check the credential"
		}
		return "check the endpoint and the network"
	case http.StatusBadRequest:
		if e.Document != "" {
			return "check the document and its partition key"
		}
		return "the account refuses the request: check the endpoint and the container"
	case http.StatusUnauthorized:
		return "check the key and this machine's clock"
	case http.StatusForbidden:
		if e.SubStatus == subPartitionFull {
			return "its logical partition is full (20 GB)"
		}
		return "check the right to write (the role Cosmos DB Built-in Data Contributor) and the account's firewall"
	case http.StatusNotFound:
		if e.Document != "" {
			return "the document to replace does not exist"
		}
		return "check the names of the database and the container"
	case http.StatusConflict:
		return e.conflict()
	case http.StatusRequestEntityTooLarge:
		if e.SubStatus == subAnswerTooLarge {
			return "the answer to one operation is larger than the account's limit: check the size of the stored document"
		}
		return "the document is larger than the limit (2 MB)"
	case http.StatusTooManyRequests:
		return "more than the provisioned RU/s; it will be retried"
	case http.StatusGone, http.StatusRequestTimeout, http.StatusServiceUnavailable, statusRetryWith, statusFailedDependency:
		return "it will be retried"
	}
	return "check the account's health in the portal"
}

// conflict returns what a document was in conflict with. An id is that of Create alone.
func (e *Error) conflict() string {
	keys := "a unique key of the container"
	if len(e.UniqueKeys) > 0 {
		keys = "the unique key " + strings.Join(e.UniqueKeys, ", or ")
	}
	switch {
	case e.Operation != Create:
		return "another document of the partition key has the same value at " + keys + ": correct the value, or delete the other document"
	case len(e.UniqueKeys) > 0:
		return "a document with this id exists already, or one with the same value at " + keys
	}
	return "a document with this id exists already"
}

// Sub-statuses, from the documentation of the SDKs
// (learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb and
// the .NET client's SubStatusCodes).
const (
	subNameCacheStale    = 1000 // 410: the container was recreated
	subKeyMismatch       = 1001 // 400: the key differs from the document's by this container's definition
	subRangeGone         = 1002 // 410: split; 404: the session is not available yet
	subOwnerNotFound     = 1003 // 404: the container itself
	subCompletingSplit   = 1007 // 410
	subCompletingMove    = 1008 // 410: the partition is moving
	subPartitionFull     = 1014 // 403: 20 GB under one key
	subAnswerTooLarge    = 3402 // 413: the answer to the request would be too large
	subWriteForbidden    = 3    // 403: the write region has moved
	subAccountNotFound   = 1008 // 403: the region has left the account
	subSessionNotArrived = 1002
)

// outcome is what a status means for a record or a request.
type outcome byte

const (
	written        outcome = iota
	retryable              // driver.RetryAfter
	outage                 // an error of the account or the network: driver.Outage
	rejected               // an error of the document: driver.Reject
	collision              // another document is in the way, perhaps not for long: an attempt has failed
	moved                  // the ranges or the container have changed
	tooLarge               // a batch over the limit
	unprocessed            // the account refused the batch as a whole
	answerTooLarge         // there was no room in the answer: it must be tried alone, and is an outage if it was
)

// outcomeOf returns the outcome of one operation, or of a request with one document.
func outcomeOf(status, sub int) outcome {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusServiceUnavailable, statusRetryWith, statusFailedDependency:
		return retryable
	case http.StatusGone:
		switch sub {
		case subRangeGone, subCompletingSplit, subCompletingMove, subNameCacheStale:
			return moved
		}
		return retryable
	case http.StatusBadRequest:
		if sub == subKeyMismatch {
			return moved
		}
		return rejected
	case http.StatusNotFound:
		switch sub {
		case subOwnerNotFound:
			return outage
		case subSessionNotArrived:
			return retryable
		}
		return rejected
	case http.StatusForbidden:
		if sub == subPartitionFull {
			return rejected
		}
		return outage
	case http.StatusRequestEntityTooLarge:
		if sub == subAnswerTooLarge {
			return answerTooLarge
		}
		return rejected
	case http.StatusConflict, http.StatusPreconditionFailed:
		return rejected
	}
	if status >= 200 && status < 300 {
		return written
	}
	return outage
}

// batchOutcomeOf returns the outcome of a batch with a status as a whole.
func batchOutcomeOf(status, sub int) outcome {
	v := outcomeOf(status, sub)
	switch {
	case status == http.StatusRequestEntityTooLarge && v == rejected:
		return tooLarge
	case status == http.StatusBadRequest && v == rejected:
		return unprocessed
	case v == rejected:
		return outage // an error of the request is never blamed on a document
	}
	return v
}

// result returns the result for the engine.
func (e *Error) result(v outcome, after time.Duration, cost float64) driver.WriteResult {
	switch v {
	case written:
		return driver.WriteResult{Cost: cost}
	case retryable, moved:
		return driver.WriteResult{Err: driver.RetryAfter(e, after), Cost: cost}
	case rejected:
		return driver.WriteResult{Err: driver.Reject(e), Cost: cost}
	case collision:
		return driver.WriteResult{Err: e, Cost: cost}
	}
	return driver.WriteResult{Err: driver.Outage(e), Cost: cost}
}

// transient reports whether a retry soon may help after err, an error without a
// response: a timeout or a broken connection. Permanent are wrong names, addresses
// and certificates.
func transient(err error) bool {
	var (
		dns         *net.DNSError
		op          *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true
	case errors.As(err, &dns), errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert):
		return false
	case errors.As(err, &op) && op.Op == "dial":
		return false
	case errors.Is(err, errNoToken), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return false
	}
	return true
}

// withoutURL removes the HTTP client's wrapping, which repeats the URL.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// firstLine returns the first line of a text, at most 200 bytes.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimSpace(text)
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
