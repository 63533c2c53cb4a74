package cosmosdb

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// Fault is a failure that the account injects.
type Fault struct {
	// Kind is the kind of failure.
	Kind FaultKind
	// Status and Substatus are the response's, for FaultStatus: a status from 400 to
	// 599. Substatus defaults to 1001 with 400, 1002 with 410 and 3200 with 429.
	Status    int
	Substatus int
	// RetryAfter is the time that the response asks the client to wait. Default: none.
	RetryAfter time.Duration
	// On is the kind of request that fails. Default: all.
	On Request
	// Container, as database/name, and Range, the id of a partition key range, restrict
	// the fault. Default: all.
	Container string
	Range     string
	// Each makes a FaultStatus hit single operations of bulk batches instead of
	// requests.
	Each bool
	// Times is how many requests or operations fail. Default: all, until the fault is
	// removed.
	Times int
	// For is how long the fault lasts after Add. Default: until it is removed.
	For time.Duration
	// Delay is how long the request is delayed before it fails.
	Delay time.Duration
}

// FaultKind is a kind of [Fault].
type FaultKind string

const (
	// FaultDelay delays a request, which then succeeds.
	FaultDelay FaultKind = "delay"
	// FaultStatus answers with an error, without executing the request.
	FaultStatus FaultKind = "status"
	// FaultDrop closes the connection, without executing the request.
	FaultDrop FaultKind = "drop"
	// FaultLoseAnswer executes the request and closes the connection before the
	// response.
	FaultLoseAnswer FaultKind = "lose-answer"
)

// Request is a kind of request.
type Request string

const (
	// OnRead is a read of one document.
	OnRead Request = "read"
	// OnWrite is a write of one document.
	OnWrite Request = "write"
	// OnBatch is a batch, transactional or bulk.
	OnBatch Request = "batch"
	// OnQuery is a query or a list of documents.
	OnQuery Request = "query"
	// OnRanges is a read of the partition key ranges.
	OnRanges Request = "ranges"
	// OnMetadata is a request about the account, its databases, containers and offers.
	OnMetadata Request = "metadata"
)

func (f *Fault) validate() error {
	switch f.Kind {
	case FaultDelay:
		if f.Delay == 0 {
			return fmt.Errorf("a fault of kind %s needs a delay", f.Kind)
		}
	case FaultStatus:
		if f.Status < 400 || f.Status > 599 {
			return fmt.Errorf("a fault of kind %s needs a status from 400 to 599", f.Kind)
		}
	case FaultDrop, FaultLoseAnswer:
	default:
		return fmt.Errorf("unknown kind of fault %.40q: must be %s, %s, %s or %s", f.Kind, FaultDelay, FaultStatus, FaultDrop, FaultLoseAnswer)
	}
	switch f.On {
	case "", OnRead, OnWrite, OnBatch, OnQuery, OnRanges, OnMetadata:
	default:
		return fmt.Errorf("unknown request %.40q: must be %s, %s, %s, %s, %s or %s", f.On, OnRead, OnWrite, OnBatch, OnQuery, OnRanges, OnMetadata)
	}
	switch {
	case f.Times < 0 || f.For < 0 || f.RetryAfter < 0 || f.Delay < 0 || f.Delay > faults.MaxDelay:
		return fmt.Errorf("times and durations of a fault must not be negative, and the delay at most %s", faults.MaxDelay)
	case f.Each && f.Kind != FaultStatus:
		return fmt.Errorf("a fault for each operation of a batch must be of kind %s", FaultStatus)
	case f.Range != "" && f.Container == "":
		return fmt.Errorf("a fault of range %.40q needs a container, too", f.Range)
	}
	return nil
}

func (f *Fault) failure() *failure {
	sub := f.Substatus
	if sub == 0 {
		switch f.Status {
		case http.StatusBadRequest:
			sub = substatusMismatch
		case http.StatusGone:
			sub = substatusGone
		case http.StatusTooManyRequests:
			sub = substatusRU
		}
	}
	return &failure{status: f.Status, substatus: sub, message: "A fault on demand.", charge: chargeRefused, retryAfter: f.RetryAfter}
}

type faultSet = faults.Set[Fault]

// Faults are the faults of an account, with the methods of [faults.Set]. It is safe for
// concurrent use.
type Faults struct{ faultSet }

// FaultState is a fault with its id and the number of requests or operations that it
// has hit.
type FaultState = faults.State[Fault]

// Add adds a fault, effective at once, and returns its id. If several faults match a
// request, the oldest one hits it.
func (f *Faults) Add(fault Fault) (id int, err error) {
	if err := fault.validate(); err != nil {
		return 0, err
	}
	return faults.Add(&f.faultSet, fault, fault.Times, fault.For)
}

// Set returns the set of faults.
func (f *Faults) Set() *faults.Set[Fault] { return &f.faultSet }

// next returns the fault that hits a request, or an operation of a bulk batch, and
// counts the hit.
func (f *Faults) next(on Request, container, rangeID string, each bool) (Fault, bool) {
	return faults.Next(&f.faultSet, func(fault *Fault) bool {
		return fault.Each == each && (fault.On == "" || fault.On == on) && (fault.Container == "" || fault.Container == container) && (fault.Range == "" || fault.Range == rangeID)
	})
}
