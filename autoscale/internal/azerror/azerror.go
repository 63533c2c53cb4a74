// Package azerror makes one line of what Azure's clients return as errors, which
// go over many and hold the response.
package azerror

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Shorten shortens the text of a response that is an error; the error itself is
// wrapped. Others stay as they are, nil too.
func Shorten(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return err
	}
	text := cmp.Or(http.StatusText(response.StatusCode), "an unknown status")
	if response.ErrorCode != "" && response.ErrorCode != text {
		text += ", " + response.ErrorCode
	}
	return &shortError{fmt.Sprintf("HTTP %d (%s)", response.StatusCode, text), err}
}

// HasStatus tells whether a response had this status.
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
