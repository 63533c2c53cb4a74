package blobstore

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// Ways in which a write can be refused that are part of the protocol.
var (
	// errChanged: the blob is not in the version that the write was decided on.
	errChanged = errors.New("the blob was changed meanwhile")
	// errLease: the lease that the request names is not the one on the blob, or
	// it names none and there is one.
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

// refusal is an answer of the server that says no, without what the SDK's
// error carries along: the request, its credentials and the answer's text.
type refusal struct {
	status int
	code   string
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("Azure Storage says %d %s", r.status, r.code)
	switch code := bloberror.Code(r.code); {
	case code == bloberror.AuthorizationPermissionMismatch:
		text += ": the credential needs the role Storage Blob Data Contributor, or a signature that allows to read, add, create, write, delete and list"
	case code == bloberror.AuthorizationFailure:
		text += ": look at the key, at what the signature allows, and at the account's network rules"
	case code == bloberror.ContainerNotFound:
		text += ": there is no such container"
	case r.status == 401 || r.status == 403:
		text += ": look at the key, the signature and its expiry, or the token, and at this machine's clock"
	}
	return text
}

// safeError makes an error of the SDK fit to be told: one line, no secrets; a
// refusal that is part of the protocol becomes errChanged or errLease. Nil
// stays nil.
func safeError(err error) error {
	if err == nil {
		return nil
	}
	if r, found := errors.AsType[*azcore.ResponseError](err); found {
		told := &refusal{status: r.StatusCode, code: r.ErrorCode}
		switch {
		case bloberror.HasCode(err, changed...):
			return fmt.Errorf("%w (%d %s)", errChanged, r.StatusCode, r.ErrorCode)
		case bloberror.HasCode(err, leased...):
			return fmt.Errorf("%w (%d %s)", errLease, r.StatusCode, r.ErrorCode)
		}
		return told
	}
	if u, found := errors.AsType[*url.Error](err); found { // it tells the URL, with the signature
		return fmt.Errorf("reach Azure Storage: %w", u.Err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\r\n") {
		return &oneLine{strings.Join(strings.Fields(text), " "), err}
	}
	return err
}

// oneLine tells an error of several lines in one.
type oneLine struct {
	text string
	err  error
}

func (e *oneLine) Error() string { return e.text }
func (e *oneLine) Unwrap() error { return e.err }

// SafeError makes an error of the SDK's client fit to be told, as those of this
// package are: in one line, and without the URL's signature. It is for users of
// [Connect].
func SafeError(err error) error { return safeError(err) }
