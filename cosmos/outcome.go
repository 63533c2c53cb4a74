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

	"github.com/sluice-go/sluice"
)

// ErrClosed is the outcome of what is submitted to a sink that is closed, and
// of what was on its way when the time of [Sink.Close] was up.
var ErrClosed = errors.New("the sink is closed")

// Error is why the account did not do what it was asked, or that it gave no
// answer. It is one line; the account's keys are in none of its fields.
type Error struct {
	Container  string // account host/database/container
	Document   string // its id, where the error is one document's
	Status     int    // as in HTTP; 0: no answer
	SubStatus  int    // Cosmos DB's own, 0 if there is none
	ActivityID string // which Azure's support asks for
	Message    string // the account's words, their first line
	Err        error  // why there was no answer
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cosmos: %s: ", e.Container)
	if e.Document != "" {
		fmt.Fprintf(&b, "document %.80q: ", e.Document)
	}
	if e.Status == 0 {
		fmt.Fprintf(&b, "no answer: %v", e.Err)
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

// Unwrap gives the reason why there was no answer.
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

// advice is the next step.
func (e *Error) advice() string {
	switch e.Status {
	case 0:
		if transient(e.Err) {
			return "it is tried again"
		}
		if errors.Is(e.Err, errNoToken) {
			return "check the credential"
		}
		return "check the endpoint, and the way there"
	case http.StatusBadRequest:
		if e.Document != "" {
			return "look at the document, and at its partition key"
		}
		return "the account does not take the request: check the endpoint and the container"
	case http.StatusUnauthorized:
		return "check the key, and this machine's clock"
	case http.StatusForbidden:
		if e.SubStatus == subPartitionFull {
			return "its partition key holds all the data that one may"
		}
		return "check the right to write (the role Cosmos DB Built-in Data Contributor) and the account's firewall"
	case http.StatusNotFound:
		if e.Document != "" {
			return "there is nothing to replace"
		}
		return "check the names of the database and the container"
	case http.StatusConflict:
		return "a document of this id is there already"
	case http.StatusRequestEntityTooLarge:
		return "the document is larger than the account takes (2 MB)"
	case http.StatusTooManyRequests:
		return "more than the provisioned RU/s; it is tried again"
	case http.StatusGone, http.StatusRequestTimeout, http.StatusServiceUnavailable, statusRetryWith, statusFailedDependency:
		return "it is tried again"
	}
	return "look at the account's health in the portal"
}

// Sub-statuses. They are in the documentation of the SDKs
// (learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb and
// the .NET client's SubStatusCodes).
const (
	subNameCacheStale    = 1000 // 410: the container was recreated
	subKeyMismatch       = 1001 // 400: the key is not the document's, as this container counts
	subRangeGone         = 1002 // 410: split; 404: the session's read is not there yet
	subOwnerNotFound     = 1003 // 404: the container itself
	subCompletingSplit   = 1007 // 410
	subCompletingMove    = 1008 // 410: the partition is moving
	subPartitionFull     = 1014 // 403: 20 GB under one key
	subWriteForbidden    = 3    // 403: the write region has moved
	subAccountNotFound   = 1008 // 403: the region has left the account
	subSessionNotArrived = 1002
)

// outcome is what a status means for who was answered.
type outcome byte

const (
	written     outcome = iota
	retryable           // it passes: sluice.RetryAfter
	outage              // the account or the way there: sluice.Outage
	rejected            // the document's own fault: sluice.Reject
	moved               // the ranges or the container have changed
	tooLarge            // a batch
	unprocessed         // the account did not take the batch as a whole
)

// outcomeOf is the verdict on one operation, or on a request of one document.
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
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge:
		return rejected
	}
	if status >= 200 && status < 300 {
		return written
	}
	return outage
}

// batchOutcomeOf is the verdict on a batch that was answered as a whole.
func batchOutcomeOf(status, sub int) outcome {
	v := outcomeOf(status, sub)
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return tooLarge
	case status == http.StatusBadRequest && v == rejected:
		return unprocessed
	case v == rejected:
		return outage // what is the request's is never held against a document
	}
	return v
}

// result is what the engine is told.
func (e *Error) result(v outcome, after time.Duration, cost float64) sluice.WriteResult {
	switch v {
	case written:
		return sluice.WriteResult{Cost: cost}
	case retryable, moved:
		return sluice.WriteResult{Err: sluice.RetryAfter(e, after), Cost: cost}
	case rejected:
		return sluice.WriteResult{Err: sluice.Reject(e), Cost: cost}
	}
	return sluice.WriteResult{Err: sluice.Outage(e), Cost: cost}
}

// transient tells whether it is worth asking again soon after err, which came
// instead of an answer: the time was up, or the connection broke. The other
// kind is a way that leads nowhere: names, addresses, certificates.
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

// withoutURL strips an error of the client's wrapping.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// firstLine is the first line of a text, not too long.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimSpace(text)
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
