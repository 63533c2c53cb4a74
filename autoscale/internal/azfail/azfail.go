// Package azfail makes one line of what Azure's clients return as errors, which
// go over many and hold the response.
package azfail

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Brief shortens the text of a response that is an error; the error itself is
// wrapped. Others stay as they are, nil too.
func Brief(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return err
	}
	text := cmp.Or(http.StatusText(response.StatusCode), "an unknown status")
	if response.ErrorCode != "" && response.ErrorCode != text {
		text += ", " + response.ErrorCode
	}
	return &brief{fmt.Sprintf("HTTP %d (%s)", response.StatusCode, text), err}
}

// Is tells whether a response had this status.
func Is(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

type brief struct {
	text  string
	cause error
}

func (b *brief) Error() string { return b.text }
func (b *brief) Unwrap() error { return b.cause }
