package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/go-amqp"
)

// permanentConditions maps the AMQP error conditions that a retry doesn't cure
// to the outcome of a batch that is answered with them.
var permanentConditions = map[amqp.ErrCond]Outcome{
	amqp.ErrCondUnauthorizedAccess:                      OutcomeDenied,
	amqp.ErrCondNotFound:                                OutcomeDenied,
	amqp.ErrCondResourceLimitExceeded:                   OutcomeDenied,
	amqp.ErrCond("com.microsoft:entity-disabled"):       OutcomeDenied,
	amqp.ErrCondNotAllowed:                              OutcomeRejected,
	amqp.ErrCondNotImplemented:                          OutcomeRejected,
	amqp.ErrCondDecodeError:                             OutcomeRejected,
	amqp.ErrCondInvalidField:                            OutcomeRejected,
	amqp.ErrCond("com.microsoft:argument-error"):        OutcomeRejected,
	amqp.ErrCond("com.microsoft:argument-out-of-range"): OutcomeRejected,
	amqp.ErrCondMessageSizeExceeded:                     OutcomeTooLarge,
}

// condServerBusy is the condition by which a service refuses what a later attempt may get.
const condServerBusy amqp.ErrCond = "com.microsoft:server-busy"

// isBusy reports whether err is a refusal by a busy service.
func isBusy(err error) bool {
	var answer *amqp.Error
	var status interface{ RPCCode() int }
	return errors.As(err, &answer) && answer.Condition == condServerBusy ||
		errors.As(err, &status) && status.RPCCode() == http.StatusServiceUnavailable
}

// busyPause is the wait before a busy service is asked again the first time. It doubles
// each time.
const busyPause = 250 * time.Millisecond

// repeatBusy calls ask, which sends nothing that is stored, and up to five times more while the
// service is busy.
func repeatBusy(ctx context.Context, ask func() error) error {
	err := ask()
	for pause := busyPause; isBusy(err) && pause < 32*busyPause; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = ask()
	}
	return err
}

// outcomeOf is the outcome of a batch whose send failed with err. Only the
// service's own answer to the batch says that the batch wasn't stored.
func outcomeOf(err error) Outcome {
	var link *amqp.LinkError
	var answer *amqp.Error
	if errors.As(err, &link) || !errors.As(err, &answer) {
		return OutcomeUnknown
	}
	if answer.Condition == condServerBusy {
		return OutcomeBusy
	}
	return cmp.Or(permanentConditions[answer.Condition], OutcomeUnknown)
}

// isPermanent reports whether err is an answer of the service that a retry
// doesn't change.
func isPermanent(err error) bool {
	var answer *amqp.Error
	var status interface{ RPCCode() int }
	return errors.As(err, &answer) && permanentConditions[answer.Condition] != 0 ||
		errors.As(err, &status) && (status.RPCCode() == 401 || status.RPCCode() == 404)
}
