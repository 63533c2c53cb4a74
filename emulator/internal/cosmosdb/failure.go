package cosmosdb

import (
	"net/http"
	"time"
)

// failure is an error response.
type failure struct {
	status     int
	substatus  int
	message    string
	charge     float64
	retryAfter time.Duration
}

func fail(status, substatus int, message string) *failure {
	return &failure{status: status, substatus: substatus, message: message}
}

func failGone() *failure {
	return fail(http.StatusGone, substatusGone, "The requested resource is no longer available at the server: the partition key range was split.")
}

func failNotFound() *failure {
	return &failure{status: http.StatusNotFound, message: messageNotFound, charge: chargeNotFound}
}

func badRequest(message string) *failure { return fail(http.StatusBadRequest, 0, message) }

func failThrottled(wait time.Duration) *failure {
	return &failure{status: http.StatusTooManyRequests, substatus: substatusRU, message: messageThrottled, charge: chargeRefused, retryAfter: wait}
}

// codeName returns the name of a status in the body of an error response.
func codeName(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequest"
	case http.StatusUnauthorized:
		return "Unauthorized"
	case http.StatusForbidden:
		return "Forbidden"
	case http.StatusNotFound:
		return "NotFound"
	case http.StatusMethodNotAllowed:
		return "MethodNotAllowed"
	case http.StatusRequestTimeout:
		return "RequestTimeout"
	case http.StatusConflict:
		return "Conflict"
	case http.StatusGone:
		return "Gone"
	case http.StatusPreconditionFailed:
		return "PreconditionFailed"
	case http.StatusRequestEntityTooLarge:
		return "RequestEntityTooLarge"
	case http.StatusTooManyRequests:
		return "TooManyRequests"
	case statusRetryWith:
		return "RetryWith"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailable"
	default:
		return "InternalServerError"
	}
}

// statusRetryWith asks the client to retry: another write of the partition came first.
const statusRetryWith = 449
