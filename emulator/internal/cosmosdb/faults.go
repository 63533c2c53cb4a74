package cosmosdb

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// Fault is something that goes wrong on demand.
type Fault struct {
	// Kind is what goes wrong.
	Kind FaultKind
	// Status and Substatus are what a fault of kind status answers. The status is 400 or above; where it is 400, 410 or 429 the substatus is 1001, 1002
	// or 3200 unless another is given.
	Status    int
	Substatus int
	// RetryAfter is what the client is asked to wait. Default: nothing is said.
	RetryAfter time.Duration
	// On is the kind of request that it befalls. Default: all.
	On Request
	// Container, as database/name, and Range, the id of a partition key range, restrict it. Default: all.
	Container string
	Range     string
	// Each has a fault of kind status befall the operations of bulk batches one by one, instead of requests.
	Each bool
	// Times is how many requests or operations it befalls. Default: each one until it is removed.
	Times int
	// For is how long it lasts from when it is added. Default: until it is removed.
	For time.Duration
	// Delay is how long the request is held up before that.
	Delay time.Duration
}

// FaultKind is a kind of [Fault].
type FaultKind string

const (
	// FaultDelay only holds up.
	FaultDelay FaultKind = "delay"
	// FaultStatus refuses: nothing is done.
	FaultStatus FaultKind = "status"
	// FaultDrop cuts the connection; nothing is done.
	FaultDrop FaultKind = "drop"
	// FaultLoseAnswer does what the request asks, and cuts the connection before it answers.
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
	// OnQuery is a query of documents, or a list of them.
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
			return fmt.Errorf("a fault of kind %s needs the length of the delay", f.Kind)
		}
	case FaultStatus:
		if f.Status < 400 || f.Status > 599 {
			return fmt.Errorf("a fault of kind %s needs a status from 400 to 599", f.Kind)
		}
	case FaultDrop, FaultLoseAnswer:
	default:
		return fmt.Errorf("unknown kind of fault %.40q: choose %s, %s, %s or %s", f.Kind, FaultDelay, FaultStatus, FaultDrop, FaultLoseAnswer)
	}
	switch f.On {
	case "", OnRead, OnWrite, OnBatch, OnQuery, OnRanges, OnMetadata:
	default:
		return fmt.Errorf("unknown request %.40q: choose %s, %s, %s, %s, %s or %s", f.On, OnRead, OnWrite, OnBatch, OnQuery, OnRanges, OnMetadata)
	}
	switch {
	case f.Times < 0 || f.For < 0 || f.RetryAfter < 0 || f.Delay < 0 || f.Delay > faults.MaxDelay:
		return fmt.Errorf("a fault happens a positive number of times, or 0 for each time, and delays up to %s", faults.MaxDelay)
	case f.Each && f.Kind != FaultStatus:
		return fmt.Errorf("operations one by one get faults of kind %s only", FaultStatus)
	case f.Range != "" && f.Container == "":
		return fmt.Errorf("a fault of range %.40q needs the range's container", f.Range)
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

// Faults are the faults of an account. Its methods may be called concurrently: beside Add, these are List, which returns each [FaultState], Remove,
// which takes an id, and Clear.
type Faults struct{ faultSet }

// FaultState is a fault and what has come of it: its ID, and its Hits, how many requests or operations it has befallen.
type FaultState = faults.State[Fault]

// Add has a fault happen from now on, and returns its id. Of several faults that fit a request, the oldest happens.
func (f *Faults) Add(fault Fault) (id int, err error) {
	if err := fault.validate(); err != nil {
		return 0, err
	}
	return faults.Add(&f.faultSet, fault, fault.Times, fault.For)
}

// Set holds the faults.
func (f *Faults) Set() *faults.Set[Fault] { return &f.faultSet }

// next counts and returns the fault that befalls a request, or an operation of a bulk batch, if any.
func (f *Faults) next(on Request, container, rangeID string, each bool) (Fault, bool) {
	return faults.Next(&f.faultSet, func(fault *Fault) bool {
		return fault.Each == each && (fault.On == "" || fault.On == on) && (fault.Container == "" || fault.Container == container) && (fault.Range == "" || fault.Range == rangeID)
	})
}
