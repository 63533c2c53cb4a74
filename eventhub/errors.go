package eventhub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/amqp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	sdk "github.com/Azure/go-amqp"
)

// refusedError is a [driver.ErrRefused] whose text says in one line what was
// refused, why, and what to do.
type refusedError struct {
	text string
	err  error
}

func (r *refusedError) Error() string        { return r.text }
func (r *refusedError) Unwrap() error        { return r.err }
func (r *refusedError) Is(target error) bool { return target == driver.ErrRefused }

// Advice for errors of the broker. The conditions are AMQP's (part 2, section
// 2.8.15) and, with the prefix com.microsoft:, those of Event Hubs. The status codes
// come in responses of the nodes $cbs and $management, and follow HTTP.
const (
	adviseRight = "not authorised: check the key and its Listen right, or the role Azure Event Hubs Data Receiver"
	adviseName  = "not found: check the names of the hub and the consumer group; the basic tier has $Default only"
	advisePlace = "no such partition or position: check the partition and the start position"
	adviseState = "disabled: enable it in the portal"
)

var conditionAdvice = map[sdk.ErrCond]string{
	sdk.ErrCondUnauthorizedAccess:         adviseRight,
	sdk.ErrCondNotFound:                   adviseName,
	sdk.ErrCondResourceDeleted:            adviseName,
	"com.microsoft:argument-out-of-range": advisePlace,
	"com.microsoft:argument-error":        advisePlace,
	"com.microsoft:entity-disabled":       adviseState,
}

var statusAdvice = map[int]string{
	http.StatusUnauthorized: adviseRight,
	http.StatusForbidden:    adviseRight,
	http.StatusNotFound:     adviseName,
	http.StatusBadRequest:   advisePlace,
}

// explain turns an error of the SDK into one clear line. It is a
// [driver.ErrRefused] if a retry cannot help.
func (s *Source) explain(thing string, err error) error {
	var token *tokenError
	switch {
	case errors.As(err, &token):
		text := fmt.Sprintf("%s: no token from Entra ID: %s", thing, s.oneLine(token.err.Error()))
		if token.final() {
			return &refusedError{text: text, err: err}
		}
		return errors.New(text)
	case cancelled(err) || errors.Is(err, errClosed):
		return fmt.Errorf("%s: %w", thing, err)
	}
	f := brokerErrorOf(err)
	if strings.HasSuffix(f.text, io.EOF.Error()) {
		return fmt.Errorf("%s: %s closed the connection: check the port, and whether it requires TLS", thing, s.broker.address())
	}
	if f.advice == "" {
		return fmt.Errorf("%s: %s", thing, s.oneLine(f.text))
	}
	return &refusedError{text: fmt.Sprintf("%s: %s (the broker says: %s)", thing, f.advice, s.oneLine(f.text)), err: err}
}

// explain is the source's explain, with what is known about the link.
func (l *link) explain(err error) error {
	end := l.receiver.failure()
	// A hub that is deleted while a reader waits may be there again: that is no refusal.
	if end.refusal != nil && !l.delivers && brokerErrorOf(end.refusal).advice != adviseName {
		err = end.refusal
	}
	f := brokerErrorOf(err)
	switch {
	case end.undecodable != "":
		return fmt.Errorf("%s: %w", l.name(), &undecodableError{l.source.oneLine(end.undecodable)})
	case f.condition == sdk.ErrCondStolen:
		return &driver.StolenError{Partition: l.partition, Epoch: epochIn(f.text)}
	case f.condition == condGeoReplicationOffset:
		return fmt.Errorf("%s: %w (the broker says: %s)", l.name(), errPromoted, l.source.oneLine(f.text))
	case f.condition == sdk.ErrCondResourceLimitExceeded:
		return fmt.Errorf("%s: a quota of the namespace is used up: each partition that is read takes a connection, the basic tier has 100, others 5,000 or more (the broker says: %s)", l.name(), l.source.oneLine(f.text))
	case f.condition == condServerBusy:
		return fmt.Errorf("%s: %w (the broker says: %s)", l.name(), errBusy, l.source.oneLine(f.text))
	case pastEnd.MatchString(f.text):
		m := pastEnd.FindStringSubmatch(f.text)
		end := &pastEndError{what: "newest event", last: l.source.oneLine(m[2])}
		if strings.EqualFold(m[1], "offset") {
			end.what = "offset of the newest event"
		}
		return fmt.Errorf("%s: %w", l.name(), end)
	case f.advice != "" || end.cause == nil:
		return l.source.explain(l.name(), err)
	case errors.Is(end.cause, errClosedByBroker) && !end.attached:
		return fmt.Errorf("%s: %s closed the connection: check the port, and whether it requires TLS", l.name(), l.source.broker.address())
	case errors.Is(end.cause, errDetached):
		return fmt.Errorf("%s: %w", l.name(), errDetached)
	}
	return fmt.Errorf("%s: %s", l.name(), l.source.oneLine(end.cause.Error()))
}

// condGeoReplicationOffset is the condition by which a geo-replicated namespace refuses an
// offset of another replication epoch, or one without an epoch.
const condGeoReplicationOffset sdk.ErrCond = "com.microsoft:georeplication:invalid-offset"

// condServerBusy is the condition by which the broker refuses what a later attempt may get.
const condServerBusy sdk.ErrCond = "com.microsoft:server-busy"

var errBusy = errors.New("the broker is busy")

var errPromoted = errors.New("the offset is of another replication epoch")

// pastEnd matches the broker's refusal of a position after the newest event: "The supplied
// offset '500' is invalid. The last offset in the system is '96'".
var pastEnd = regexp.MustCompile(`(?i)the supplied (?:offset|sequence number) .*is invalid.*the last (offset|sequence number) in the system is '([^']*)'`)

// pastEndError is the broker's refusal of a position after the newest event.
type pastEndError struct {
	what string // "newest event", or "offset of the newest event"
	last string // its number or offset
}

func (e *pastEndError) Error() string {
	return fmt.Sprintf("the position is after the newest event: the %s is %s", e.what, e.last)
}

// Is reports whether target is [driver.ErrPastEnd].
func (e *pastEndError) Is(target error) bool { return target == driver.ErrPastEnd }

// undecodableError is the error of a link whose next event the SDK cannot decode.
type undecodableError struct{ reason string }

func (e *undecodableError) Error() string {
	return fmt.Sprintf("an event cannot be decoded (%s): start after it, by sequence number", e.reason)
}

// brokerError is what is known about an error of the SDK, or of our own client.
type brokerError struct {
	condition sdk.ErrCond // empty if it was not an AMQP error
	advice    string      // empty if a retry may help
	text      string
}

// brokerErrorOf analyses an error of the SDK, or of our own client. The SDK returns some errors of
// the broker as they are, and others only as text within its own error type.
func brokerErrorOf(err error) brokerError {
	var amqpErr *sdk.Error
	var sent *amqp.Error
	var status *amqp.StatusError
	var answer interface{ RPCCode() int }
	var own *azeventhubs.Error
	switch {
	case errors.As(err, &amqpErr):
		return brokerError{amqpErr.Condition, conditionAdvice[amqpErr.Condition], cmp.Or(amqpErr.Description, string(amqpErr.Condition))}
	case errors.As(err, &sent):
		condition := sdk.ErrCond(sent.Condition)
		return brokerError{condition, conditionAdvice[condition], cmp.Or(sent.Description, string(sent.Condition))}
	case errors.As(err, &status):
		return brokerError{advice: statusAdvice[status.Code], text: cmp.Or(status.Description, status.Error())}
	case errors.As(err, &answer):
		return brokerError{advice: statusAdvice[answer.RPCCode()], text: statusPrefix.ReplaceAllString(err.Error(), "")}
	case errors.As(err, &own):
		text := strings.TrimPrefix(own.Error(), fmt.Sprintf("(%s): ", own.Code))
		if m := amqpErrorText.FindStringSubmatch(text); m != nil {
			condition := sdk.ErrCond(m[1])
			return brokerError{condition, conditionAdvice[condition], m[2]}
		}
		f := brokerError{text: text}
		if own.Code == azeventhubs.ErrorCodeUnauthorizedAccess {
			f.advice = adviseRight
		}
		return f
	}
	return brokerError{text: err.Error()}
}

// statusPrefix is the SDK's text before the description that comes with a status.
var statusPrefix = regexp.MustCompile(`^rpc: failed, status code \d+ and description: `)

// amqpErrorText matches the text of an [sdk.Error].
var amqpErrorText = regexp.MustCompile(`(?s)\*Error\{Condition: ([^,]*), Description: (.*), Info: `)

// higherEpoch matches the epoch that won, in each of Event Hubs' messages: "New
// receiver 'X' with higher epoch of '7' is created hence …", "Receiver 'X'
// with a higher epoch '7' already exists …", and of a reader without one "At least
// one receiver for the endpoint is created with epoch of '7' …".
var higherEpoch = regexp.MustCompile(`(?:higher epoch (?:of )?|created with epoch of )'(\d{1,19})'`)

// epochIn returns the epoch in a message about a stolen link, 0 if there is none.
func epochIn(text string) int64 {
	m := higherEpoch.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	epoch, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// cancelled reports whether an error is that of a context.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// oneLine shortens a text from outside to one line, without the broker's tracking
// information, and without our secrets in case the text repeats them.
func (s *Source) oneLine(text string) string {
	const limit = 300
	text, _, _ = strings.Cut(text, ", SystemTracker:")
	for _, secret := range []string{s.broker.key, s.broker.signature} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// boundedCredential bounds the time for a token, for which the SDK sets no limit,
// and marks its errors.
type boundedCredential struct {
	azcore.TokenCredential
	timeout time.Duration
}

func (c boundedCredential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	token, err := c.TokenCredential.GetToken(ctx, options)
	if err != nil {
		return token, &tokenError{err}
	}
	return token, nil
}

// tokenError is the error of a credential. Its NonRetriable makes the SDK return
// it as it is.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// NonRetriable marks the error for the SDK.
func (e *tokenError) NonRetriable() {}

// final reports whether Entra ID checked the credential and refused it.
func (e *tokenError) final() bool {
	switch authenticationStatus(e.err) {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return true
	}
	return false
}

// authenticationStatus is the HTTP status in the [azidentity.AuthenticationFailedError] that err is
// or wraps, 0 if there is none. The type has no method that returns the status, so it is recognised
// by name and its field is read by reflection: importing azidentity for it would make every user of
// this package compile 39 packages of 7 more modules, whatever credential they use.
//
// [azidentity.AuthenticationFailedError]: https://pkg.go.dev/github.com/Azure/azure-sdk-for-go/sdk/azidentity#AuthenticationFailedError
func authenticationStatus(err error) int {
	if err == nil {
		return 0
	}
	if v := reflect.ValueOf(err); v.Type().String() == "*azidentity.AuthenticationFailedError" && !v.IsNil() {
		if field := v.Elem().FieldByName("RawResponse"); field.IsValid() {
			if response, ok := field.Interface().(*http.Response); ok && response != nil {
				return response.StatusCode
			}
		}
		return 0
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		return authenticationStatus(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range wrapper.Unwrap() {
			if status := authenticationStatus(wrapped); status != 0 {
				return status
			}
		}
	}
	return 0
}
