package eventhub

import (
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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// refusal is an [sluice.ErrRefused] that tells in one line what was refused,
// why, and what to do.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Unwrap() error        { return r.err }
func (r *refusal) Is(target error) bool { return target == driver.ErrRefused }

// What to do about what the broker says. The conditions are AMQP's and, with
// their own prefix, Event Hubs'; the status codes are those of answers over
// $cbs and $management, which follow HTTP.
const (
	adviseRight = "not authorised: check the key and its right to listen, or the role Azure Event Hubs Data Receiver"
	adviseName  = "not found: check the names of the hub and the consumer group"
	advisePlace = "no such partition or position: check what was asked for"
	adviseState = "disabled: enable it in the portal"
)

var conditionAdvice = map[amqp.ErrCond]string{
	amqp.ErrCondUnauthorizedAccess:        adviseRight,
	amqp.ErrCondNotFound:                  adviseName,
	amqp.ErrCondResourceDeleted:           adviseName,
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

// explain makes one clear line of an error of the SDK's. It is an
// [sluice.ErrRefused] if asking again cannot help.
func (s *Source) explain(thing string, err error) error {
	var token *tokenError
	switch {
	case errors.As(err, &token):
		text := fmt.Sprintf("%s: no token from Entra ID: %s", thing, s.line(token.err.Error()))
		if token.final() {
			return &refusal{text: text, err: err}
		}
		return errors.New(text)
	case cancelled(err) || errors.Is(err, errClosed):
		return fmt.Errorf("%s: %w", thing, err)
	}
	f := faultOf(err)
	if strings.HasSuffix(f.text, io.EOF.Error()) {
		return fmt.Errorf("%s: %s ended the connection: check the port, and whether it wants TLS", thing, s.broker.address())
	}
	if f.advice == "" {
		return fmt.Errorf("%s: %s", thing, s.line(f.text))
	}
	return &refusal{text: fmt.Sprintf("%s: %s (the broker says: %s)", thing, f.advice, s.line(f.text)), err: err}
}

// explain is the source's, and knows what has happened to the link.
func (l *link) explain(err error) error {
	f := faultOf(err)
	switch {
	case f.condition == amqp.ErrCondStolen:
		return &driver.StolenError{Partition: l.partition, Epoch: epochIn(f.text)}
	case f.advice != "" || l.wire.cause() == nil:
		return l.source.explain(l.name(), err)
	case errors.Is(l.wire.cause(), errDetached):
		return fmt.Errorf("%s: %w", l.name(), errDetached)
	}
	return fmt.Errorf("%s: %s", l.name(), l.source.line(l.wire.cause().Error()))
}

// fault is what an error of the SDK's comes down to.
type fault struct {
	condition amqp.ErrCond // empty if it was none of AMQP's
	advice    string       // empty if trying again may help
	text      string
}

// faultOf takes an error of the SDK's apart. Some the SDK hands out as they
// are, some it buries in the text of its own error type.
func faultOf(err error) fault {
	var amqpErr *amqp.Error
	var answer interface{ RPCCode() int }
	var own *azeventhubs.Error
	switch {
	case errors.As(err, &amqpErr):
		return fault{amqpErr.Condition, conditionAdvice[amqpErr.Condition], amqpErr.Description}
	case errors.As(err, &answer):
		return fault{advice: statusAdvice[answer.RPCCode()], text: wrapping.ReplaceAllString(err.Error(), "")}
	case errors.As(err, &own):
		text := strings.TrimPrefix(own.Error(), fmt.Sprintf("(%s): ", own.Code))
		if m := buried.FindStringSubmatch(text); m != nil {
			condition := amqp.ErrCond(m[1])
			return fault{condition, conditionAdvice[condition], m[2]}
		}
		f := fault{text: text}
		if own.Code == azeventhubs.ErrorCodeUnauthorizedAccess {
			f.advice = adviseRight
		}
		return f
	}
	return fault{text: err.Error()}
}

// wrapping is what the SDK puts around the description that comes with a status.
var wrapping = regexp.MustCompile(`^rpc: failed, status code \d+ and description: `)

// buried finds the text of an [amqp.Error].
var buried = regexp.MustCompile(`(?s)\*Error\{Condition: ([^,]*), Description: (.*), Info: `)

// higher finds the epoch that won, in both of Event Hubs' messages: "New
// receiver 'X' with higher epoch of '7' is created hence …" and "Receiver 'X'
// with a higher epoch '7' already exists …".
var higher = regexp.MustCompile(`higher epoch (?:of )?'(\d{1,19})'`)

// epochIn is the epoch that a message about a stolen link names, 0 if none.
func epochIn(text string) int64 {
	m := higher.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	epoch, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// cancelled tells whether an error is a context's.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// line makes one line of bounded length of a text from outside, without the
// broker's notes to itself, and without the secrets should it repeat them.
func (s *Source) line(text string) string {
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

// boundedCredential bounds the time for a token, for which the SDK sets none,
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

// tokenError is a credential's failure. Its NonRetriable tells the SDK to hand
// it out as it is.
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

// authenticationStatus is the HTTP status in the [azidentity.AuthenticationFailedError] that err is or
// wraps, 0 if there is none. The type has no method that returns the status, so it is recognised by name
// and its field is read by reflection: importing azidentity for it would make every user of this package
// compile 39 packages of 7 more modules, whatever credential they use.
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
