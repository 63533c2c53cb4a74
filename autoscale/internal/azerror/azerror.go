// Package azerror shortens errors of the Azure SDK, whose text has many lines with
// the whole response, to one line.
package azerror

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Shorten returns an error that wraps err and has one line of text, if err has a
// response; otherwise err itself, which may be nil.
func Shorten(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return err
	}
	text := cmp.Or(http.StatusText(response.StatusCode), "unknown status")
	if response.ErrorCode != "" && response.ErrorCode != text {
		text += ", " + response.ErrorCode
	}
	return &shortError{fmt.Sprintf("HTTP %d (%s)", response.StatusCode, text), err}
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
