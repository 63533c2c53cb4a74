package sender

import (
	"cmp"
	"errors"

	"github.com/Azure/go-amqp"
)

// final are AMQP's conditions that trying again doesn't mend, as verdicts on a
// batch that gets them for an answer.
var final = map[amqp.ErrCond]Verdict{
	amqp.ErrCondUnauthorizedAccess:                      Denied,
	amqp.ErrCondNotFound:                                Denied,
	amqp.ErrCondResourceLimitExceeded:                   Denied,
	amqp.ErrCond("com.microsoft:entity-disabled"):       Denied,
	amqp.ErrCondNotAllowed:                              Refused,
	amqp.ErrCondNotImplemented:                          Refused,
	amqp.ErrCondDecodeError:                             Refused,
	amqp.ErrCondInvalidField:                            Refused,
	amqp.ErrCond("com.microsoft:argument-error"):        Refused,
	amqp.ErrCond("com.microsoft:argument-out-of-range"): Refused,
	amqp.ErrCondMessageSizeExceeded:                     Oversize,
}

// verdictOf tells what an error of a send says about the batch. Only the
// service's own answer to it says that it wasn't taken.
func verdictOf(err error) Verdict {
	var link *amqp.LinkError
	var answer *amqp.Error
	if errors.As(err, &link) || !errors.As(err, &answer) {
		return Lost
	}
	if answer.Condition == "com.microsoft:server-busy" {
		return Busy
	}
	return cmp.Or(final[answer.Condition], Lost)
}

// isFinal tells whether an error is an answer that trying again doesn't mend.
func isFinal(err error) bool {
	var answer *amqp.Error
	var status interface{ RPCCode() int }
	return errors.As(err, &answer) && final[answer.Condition] != 0 ||
		errors.As(err, &status) && (status.RPCCode() == 401 || status.RPCCode() == 404)
}
