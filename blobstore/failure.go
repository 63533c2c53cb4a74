package blobstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// Refusals of a write that are part of the protocol.
var (
	// errChanged: the blob no longer has the version that was read.
	errChanged = errors.New("the blob was changed meanwhile")
	// errLease: the request names another lease than the one on the blob, or
	// names none although there is one.
	errLease = errors.New("the blob's lease is not as expected")
)

// Error codes: https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
var (
	changed = []bloberror.Code{
		bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound,
	}
	leased = []bloberror.Code{
		bloberror.LeaseAlreadyPresent, bloberror.LeaseIDMissing, bloberror.LeaseLost,
		bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseIDMismatchWithLeaseOperation,
		bloberror.LeaseNotPresentWithBlobOperation, bloberror.LeaseNotPresentWithLeaseOperation,
		bloberror.LeaseIsBreakingAndCannotBeAcquired, bloberror.LeaseIsBreakingAndCannotBeChanged,
		bloberror.LeaseIsBrokenAndCannotBeRenewed, bloberror.LeaseAlreadyBroken,
	}
)

// refusal is an error response of the server, without what the SDK's error contains besides: the
// request, its credentials and the text of the response.
type refusal struct {
	status int
	code   string
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("Azure Storage returned %d %s", r.status, r.code)
	switch code := bloberror.Code(r.code); {
	case code == bloberror.AuthorizationPermissionMismatch:
		text += ": the credential needs the role Storage Blob Data Contributor, or a signature that allows to read, add, create, write, delete and list"
	case code == bloberror.AuthorizationFailure:
		text += ": check the key, the permissions of the signature, and the network rules of the account"
	case code == bloberror.ContainerNotFound:
		text += ": there is no such container: create it, or check its name"
	case r.status == 401 || r.status == 403:
		text += ": check the key, the signature and its expiry, or the token, and this machine's clock"
	}
	return text
}

// safeError converts an error of the SDK to one line without secrets. A refusal that is part of the
// protocol becomes errChanged or errLease. Nil stays nil.
func safeError(err error) error {
	if err == nil {
		return nil
	}
	if r, found := errors.AsType[*azcore.ResponseError](err); found {
		refused := &refusal{status: r.StatusCode, code: r.ErrorCode}
		switch {
		case bloberror.HasCode(err, changed...):
			return fmt.Errorf("%w (%d %s)", errChanged, r.StatusCode, r.ErrorCode)
		case bloberror.HasCode(err, leased...):
			return fmt.Errorf("%w (%d %s)", errLease, r.StatusCode, r.ErrorCode)
		}
		return refused
	}
	if u, found := errors.AsType[*url.Error](err); found { // its text contains the URL, with the signature
		return fmt.Errorf("reach Azure Storage: %w", u.Err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\r\n") {
		return &oneLine{strings.Join(strings.Fields(text), " "), err}
	}
	return err
}

// oneLine is an error of several lines in one.
type oneLine struct {
	text string
	err  error
}

func (e *oneLine) Error() string { return e.text }
func (e *oneLine) Unwrap() error { return e.err }

// SafeError converts an error of the SDK's client, as this package does with its own: to one line,
// without the URL's signature. It is for users of [Connect].
func SafeError(err error) error { return safeError(err) }
