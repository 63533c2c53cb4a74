// Package azerror shortens errors of the Azure SDK, whose text has many lines with
// the whole response, to one line.
package azerror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Shorten returns an error that wraps err and has one line of text, with the message of
// Azure Resource Manager if there is one, if err has a response; otherwise err itself,
// which may be nil.
func Shorten(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return err
	}
	text := cmp.Or(http.StatusText(response.StatusCode), "unknown status")
	if response.ErrorCode != "" && response.ErrorCode != text {
		text += ", " + response.ErrorCode
	}
	text = fmt.Sprintf("HTTP %d (%s)", response.StatusCode, text)
	if said := message(response.RawResponse); said != "" {
		text += ": " + said
	}
	return &shortError{text, err}
}

// maxMessage is the length in bytes of a message in an error.
const maxMessage = 300

// message returns what Azure Resource Manager says in its response, as one line of bounded
// length. The SDK has read the response, so that its body can be read again.
func message(r *http.Response) string {
	if r == nil || r.Body == nil {
		return ""
	}
	body, err := runtime.Payload(r)
	if err != nil {
		return ""
	}
	var said struct {
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return ""
	}
	text := strings.Join(strings.FieldsFunc(cmp.Or(said.Error.Message, said.Message), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// maxRetryAfter bounds how long a response can ask to wait.
const maxRetryAfter = time.Hour

// RetryAfter returns how long a response asks to wait before the next request (Retry-After), at
// most an hour; 0 if it does not ask.
func RetryAfter(err error) time.Duration {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		return 0
	}
	text := response.RawResponse.Header.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = max(time.Until(at), 0)
	}
	return min(wait, maxRetryAfter)
}

// HasStatus reports whether err has a response with this HTTP status.
func HasStatus(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

type shortError struct {
	text  string
	cause error
}

func (b *shortError) Error() string { return b.text }
func (b *shortError) Unwrap() error { return b.cause }
