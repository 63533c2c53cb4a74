package sender

import (
	"cmp"
	"errors"

	"github.com/Azure/go-amqp"
)

// final are AMQP's conditions that trying again doesn't mend, as verdicts on a
// batch that gets them for an answer.
var final = map[amqp.ErrCond]Outcome{
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

// outcomeOf tells what an error of a send says about the batch. Only the
// service's own answer to it says that it wasn't taken.
func outcomeOf(err error) Outcome {
	var link *amqp.LinkError
	var answer *amqp.Error
	if errors.As(err, &link) || !errors.As(err, &answer) {
		return OutcomeUnknown
	}
	if answer.Condition == "com.microsoft:server-busy" {
		return OutcomeBusy
	}
	return cmp.Or(final[answer.Condition], OutcomeUnknown)
}

// isFinal tells whether an error is an answer that trying again doesn't mend.
func isFinal(err error) bool {
	var answer *amqp.Error
	var status interface{ RPCCode() int }
	return errors.As(err, &answer) && final[answer.Condition] != 0 ||
		errors.As(err, &status) && (status.RPCCode() == 401 || status.RPCCode() == 404)
}
